"""The graph of pipelines: every box stands, behind those that lead to it."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console.graph import NODE_HEIGHT, NODE_WIDTH, Node, draw, layers_of
from ottla.console.pipelines import picture, pipeline_row, with_group_lag

IDS = st.integers(0, 9).map(str)


@given(st.lists(st.tuples(IDS, IDS), max_size=25))
def test_layers_rise_along_edges_where_there_is_no_circle(pairs: list[tuple[str, str]]) -> None:
    edges = [(a, b) for a, b in pairs if a < b]
    layer = layers_of([str(n) for n in range(10)], edges)
    assert all(layer[a] < layer[b] for a, b in edges)


@given(st.lists(st.tuples(IDS, IDS), max_size=25))
def test_no_boxes_overlap_and_all_lie_in_the_picture(pairs: list[tuple[str, str]]) -> None:
    drawn = draw([Node(str(n), "topic", str(n)) for n in range(10)], pairs)
    places = [(box.x, box.y) for box in drawn.boxes]
    assert len(set(places)) == len(places) == 10
    for x, y in places:
        assert 0 <= x <= drawn.width - NODE_WIDTH
        assert 0 <= y <= drawn.height - NODE_HEIGHT
    for one in places:
        for other in places:
            if one != other and one[0] == other[0]:
                assert abs(one[1] - other[1]) >= NODE_HEIGHT


def test_nothing_to_draw_is_no_picture() -> None:
    assert draw([], []).boxes == []


def status(name: str, source: str, target: str) -> dict[str, object]:
    nodes = [("topic", source), ("source", "s"), ("sink", "k"), ("topic", target)]
    return {
        "name": name,
        "state": "running",
        "graph": {
            "nodes": [{"id": f"{k}:{v}", "kind": k, "label": v} for k, v in nodes],
            "edges": [
                [f"topic:{source}", "source:s"],
                ["source:s", "sink:k"],
                ["sink:k", f"topic:{target}"],
            ],
        },
        "queries": [
            {
                "name": "k",
                "processed_rows_per_second": 12.4,
                "lag": {source: 3},
                "groups": [f"{name}-k-s"],
            }
        ],
    }


def test_two_pipelines_share_the_topic_between_them() -> None:
    rows = [
        pipeline_row(status("a", "in", "mid"), "a"),
        pipeline_row(status("b", "mid", "out"), "b"),
    ]
    drawn = picture(rows, {"in": 5.0})
    labels = [box.node.label for box in drawn.boxes]
    assert labels.count("mid") == 1
    assert sorted(labels) == ["in", "k", "k", "mid", "out"]
    assert len(drawn.edges) == 4
    assert [row.lag for row in rows] == [3, 3]


def test_a_transform_that_only_feeds_the_sink_of_its_name_is_no_box_of_its_own() -> None:
    nodes = [("topic", "in"), ("source", "s"), ("transform", "totals"), ("sink", "totals"),
             ("topic", "out")]  # fmt: skip
    chain = [f"{kind}:{label}" for kind, label in nodes]
    row = pipeline_row(
        {
            "graph": {
                "nodes": [{"id": f"{k}:{v}", "kind": k, "label": v} for k, v in nodes],
                "edges": [list(pair) for pair in pairwise(chain)],
            }
        },
        "p",
    )
    drawn = picture([row], {})
    assert sorted(box.node.label for box in drawn.boxes) == ["in", "out", "totals"]
    assert [(edge.source, edge.target) for edge in drawn.edges] == [
        ("in", "totals"),
        ("totals", "out"),
    ]


def test_a_pipelines_lag_is_that_of_its_groups_where_they_are_known() -> None:
    row = pipeline_row(status("a", "in", "out"), "a")
    known = with_group_lag(row, {"a-k-s": 485, "other": 1})
    assert (known.lag, known.queries[0].lag, known.queries[0].groups) == (485, 485, ["a-k-s"])
    unknown = with_group_lag(row, {"a-k-s": None})
    assert (unknown.lag, unknown.queries[0].groups) == (3, [])


@pytest.mark.parametrize(
    "odd",
    [
        {"queries": [{"lag": 3, "batch_id": "x", "rows_total": {}}]},
        {"queries": 3, "last_error": "x", "restarts": "many"},
        {"graph": {"nodes": [3, {"id": 1}], "edges": [3, [1], [1, {}]]}},
        {"graph": [], "started_at_ms": float("nan"), "updated_at_ms": float("inf")},
        {"name": None, "state": None, "queries": [{"lag": {"t": "x", "u": 2}}]},
    ],
)
def test_an_odd_status_is_shown_as_far_as_it_goes(odd: dict[str, object]) -> None:
    row = pipeline_row(odd, "p")
    assert row.name == "p"
    assert picture([row], {}).width >= 0


def test_a_status_of_another_version_is_shown_as_far_as_it_goes() -> None:
    row = pipeline_row({"queries": [{}, "odd"], "last_error": None}, "p")
    assert (row.name, row.state, row.lag, len(row.queries)) == ("p", "unknown", 0, 1)
    assert picture([row], {}).boxes == []
