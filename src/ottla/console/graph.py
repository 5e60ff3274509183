"""Where the boxes of a graph of topics and queries stand, as coordinates for SVG. Pure.

Layers from left to right by the longest way from a beginning, boxes within a layer near those that
they come from. A circle (a pipeline that reads what it writes) is cut where it would go back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

NODE_WIDTH = 176
NODE_HEIGHT = 44
GAP_X = 64
GAP_Y = 18
MARGIN = 8
# More boxes than this are a wall, not a picture.
NODES_MAX = 200


class Node(NamedTuple):
    node_id: str
    kind: str
    label: str
    note: str = ""
    href: str = ""
    tone: str = ""


class Box(NamedTuple):
    node: Node
    x: int
    y: int


class Edge(NamedTuple):
    path: str  # of SVG
    source: str  # the label of the box that it leaves
    target: str


class Picture(NamedTuple):
    boxes: list[Box]
    edges: list[Edge]
    width: int
    height: int


def layers_of(ids: Sequence[str], edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Each node's layer: behind everything that leads to it, circles cut."""
    onward: dict[str, list[str]] = defaultdict(list)
    for source, target in edges:
        onward[source].append(target)
    order: list[str] = []
    state: dict[str, int] = {}
    kept: list[tuple[str, str]] = []
    for root in ids:
        if root in state:
            continue
        state[root] = 1
        stack = [(root, iter(onward[root]))]
        while stack:
            here, targets = stack[-1]
            onto = next(targets, None)
            if onto is None:
                stack.pop()
                state[here] = 2
                order.append(here)
            elif state.get(onto) != 1:
                kept.append((here, onto))
                if onto not in state:
                    state[onto] = 1
                    stack.append((onto, iter(onward[onto])))
    layer = dict.fromkeys(ids, 0)
    following: dict[str, list[str]] = defaultdict(list)
    for source, target in kept:
        following[source].append(target)
    for here in reversed(order):
        for target in following[here]:
            layer[target] = max(layer[target], layer[here] + 1)
    return layer


def draw(nodes: Sequence[Node], edges: Iterable[tuple[str, str]]) -> Picture:
    """The picture of a graph; edges to nodes that are not there are left out."""
    nodes = nodes[:NODES_MAX]
    known = {node.node_id: node for node in nodes}
    pairs = [(a, b) for a, b in dict.fromkeys(edges) if a in known and b in known and a != b]
    layer = layers_of(list(known), pairs)
    columns: dict[int, list[str]] = defaultdict(list)
    for node_id in known:
        columns[layer[node_id]].append(node_id)
    before: dict[str, list[str]] = defaultdict(list)
    for source, target in pairs:
        before[target].append(source)
    row: dict[str, float] = {}
    for column in sorted(columns):
        members = columns[column]
        if column:
            members.sort(key=lambda node_id: _middle([row[x] for x in before[node_id] if x in row]))
        for position, node_id in enumerate(members):
            row[node_id] = float(position)
    tallest = max((len(members) for members in columns.values()), default=0)
    height = tallest * (NODE_HEIGHT + GAP_Y) - GAP_Y + 2 * MARGIN if tallest else 0
    boxes: dict[str, Box] = {}
    for column, members in columns.items():
        used = len(members) * (NODE_HEIGHT + GAP_Y) - GAP_Y
        top = (height - used) // 2
        for position, node_id in enumerate(members):
            x = MARGIN + column * (NODE_WIDTH + GAP_X)
            boxes[node_id] = Box(known[node_id], x, top + position * (NODE_HEIGHT + GAP_Y))
    width = 2 * MARGIN + len(columns) * (NODE_WIDTH + GAP_X) - GAP_X if columns else 0
    drawn = [Edge(_path(boxes[a], boxes[b]), known[a].label, known[b].label) for a, b in pairs]
    return Picture(list(boxes.values()), drawn, width, height)


def _middle(rows: list[float]) -> float:
    return sum(rows) / len(rows) if rows else 0.0


def _path(source: Box, target: Box) -> str:
    x1, y1 = source.x + NODE_WIDTH, source.y + NODE_HEIGHT // 2
    x2, y2 = target.x - 6, target.y + NODE_HEIGHT // 2
    bend = max(24, (x2 - x1) // 2)
    return f"M{x1},{y1} C{x1 + bend},{y1} {x2 - bend},{y2} {x2},{y2}"
