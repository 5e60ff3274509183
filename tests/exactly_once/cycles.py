"""Whether information flowed in a circle: read from a transaction that read from this one.

Each edge says that its first operation came before its second: `wr`, the second read what the
first sent; `process`, both are of one process; `realtime`, the first had ended when the second
began. Edges between sends of one partition (`ww`) are left out: Kafka does not isolate writes, so
circles with them are normal. A circle of the others never is, at read_committed.

Real time would take an edge for nearly every pair. One extra vertex per end of an operation
stands in for them: operation -> its end -> the next end -> whatever began after that.

Pure.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence

Graph = list[set[int]]


def components(graph: Graph) -> list[list[int]]:
    """The strongly connected components of more than one vertex (Tarjan, without recursion)."""
    count = len(graph)
    index = [0] * count  # 0: not seen yet
    low = [0] * count
    on_stack = [False] * count
    stack: list[int] = []
    found: list[list[int]] = []
    clock = 0
    for root in range(count):
        if index[root]:
            continue
        work = [(root, iter(graph[root]))]
        clock += 1
        index[root] = low[root] = clock
        stack.append(root)
        on_stack[root] = True
        while work:
            vertex, edges = work[-1]
            for target in edges:
                if not index[target]:
                    clock += 1
                    index[target] = low[target] = clock
                    stack.append(target)
                    on_stack[target] = True
                    work.append((target, iter(graph[target])))
                    break
                if on_stack[target]:
                    low[vertex] = min(low[vertex], index[target])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[vertex])
                if low[vertex] == index[vertex]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack[member] = False
                        component.append(member)
                        if member == vertex:
                            break
                    if len(component) > 1:
                        found.append(component)
    return found


def shortest_cycle(graph: Graph, component: Iterable[int], *, start: int) -> list[int]:
    """The vertices of a shortest cycle through `start`, within its component."""
    inside = set(component)
    came_from: dict[int, int] = {}
    queue = deque([start])
    while queue:
        vertex = queue.popleft()
        for target in graph[vertex]:
            if target == start:
                path = [vertex]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return path[::-1]
            if target in inside and target not in came_from:
                came_from[target] = vertex
                queue.append(target)
    raise ValueError(f"vertex {start} lies on no cycle of its component")


def with_realtime(
    graph: Graph, begins: Sequence[int], ends: Sequence[int | None]
) -> tuple[Graph, int]:
    """The graph with real-time order added, and how many of its vertices are operations.

    An operation without an end precedes nothing.
    """
    operations = len(graph)
    ordered = sorted((end, vertex) for vertex, end in enumerate(ends) if end is not None)
    extended: Graph = [set(edges) for edges in graph]
    extended += [set() for _ in ordered]
    for position, (_, vertex) in enumerate(ordered):
        extended[vertex].add(operations + position)
        if position + 1 < len(ordered):
            extended[operations + position].add(operations + position + 1)
    times = [end for end, _ in ordered]
    for vertex, begin in enumerate(begins):
        ended_before = bisect_left(times, begin)
        if ended_before:
            extended[operations + ended_before - 1].add(vertex)
    return extended, operations
