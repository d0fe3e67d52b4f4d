"""Drawings are values made into markup: nothing in them can be anything else than what was drawn."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trax.records.stats import GroupGraph
from trax.web.charts import (
    Column,
    Node,
    Stretch,
    bar_chart,
    element,
    graph,
    layers_of,
    ring,
    share,
    stretches,
    ticks,
    top_of,
)
from trax.web.pages.groups import MAX_GROUPS_DRAWN, limit_graph

EVIL = '<script>alert("1")</script>'
names = st.integers(0, 12).map(str)


def parsed(markup: str) -> ET.Element:
    return ET.fromstring(markup)  # noqa: S314 - our own


def test_text_and_attributes_are_escaped() -> None:
    drawn = element("text", EVIL, class_=EVIL)

    assert EVIL not in drawn
    assert parsed(drawn).text == EVIL
    assert parsed(drawn).get("class") == EVIL


def test_numbers_are_short_and_nothing_is_left_out() -> None:
    drawn = element("rect", x=1.0, y=0.123456, stroke_width=2, rx=None)

    assert drawn == '<rect x="1" y="0.12" stroke-width="2"/>'


@pytest.mark.parametrize(
    ("highest", "top"), [(0, 4), (3, 4), (5, 5), (7, 10), (11, 20), (21, 40), (99, 100), (4001, 5000)]
)
def test_a_scale_ends_at_a_round_number(highest: int, top: int) -> None:
    assert top_of([Column("now", (highest, 0))]) == top


def test_columns_stand_on_each_other_and_fill_the_height() -> None:
    drawn = parsed(
        bar_chart([Column("12:00", (3, 1)), Column("12:01", (0, 0))], ["good", "bad"], label="runs")
    )

    full, empty = drawn.findall("g")
    good, bad = [one for one in full.findall("rect") if one.get("class") != "hover"]
    assert (good.get("y"), good.get("height"), bad.get("y"), bad.get("height")) == ("25", "75", "0", "25")
    assert full.findtext("title") == "12:00: 3 good, 1 bad"
    assert empty.findtext("title") == "12:01: none"


def test_there_are_never_more_labels_than_fit() -> None:
    columns = [Column(str(number), (0,)) for number in range(60)]

    assert ticks(columns, 6) == ["0", "10", "20", "30", "40", "50"]


def test_the_parts_of_a_ring_go_once_around() -> None:
    drawn = parsed(ring([("completed", 3), ("failed", 0), ("cancelled", 1)], label="states"))

    parts = [one for one in drawn.findall("circle") if "ring-part" in str(one.get("class"))]
    lengths = [float(str(one.get("stroke-dasharray")).split()[0]) for one in parts]
    assert len(lengths) == 2
    assert sum(lengths) == pytest.approx(263.89, abs=0.1)
    assert drawn.findtext("text") == "4"


def test_a_stretch_without_duration_is_visible() -> None:
    (bar,) = parsed(stretches([Stretch("run", 1.0, 1.0)], label="run")).findall("rect")

    assert (bar.get("x"), bar.get("width")) == ("998", "2")


def test_a_share_is_as_wide_as_it_is_large() -> None:
    (bar,) = parsed(share(0.25, "failed", label="a quarter")).findall("rect")

    assert bar.get("width") == "250"


def test_everything_stands_to_the_right_of_what_it_waits_for() -> None:
    edges = [("import", "close"), ("close", "report"), ("import", "report")]

    layers = layers_of(["report", "close", "import"], edges)

    assert layers == [["import"], ["close"], ["report"]]


@given(st.lists(st.tuples(names, names), max_size=40))
def test_any_graph_can_be_drawn_even_one_in_a_circle(edges: list[tuple[str, str]]) -> None:
    keys = sorted({key for edge in edges for key in edge})

    layers = layers_of(keys, edges)
    drawn = parsed(graph([Node(key=key, href=f"/{key}") for key in keys], edges, label="all"))

    assert sorted(key for layer in layers for key in layer) == keys
    assert len(drawn.findall("a")) == len(keys)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(10, 19)), max_size=30))
def test_edges_of_a_graph_without_circles_lead_to_the_right(edges: list[tuple[int, int]]) -> None:
    named = [(str(parent), str(child)) for parent, child in edges]
    keys = sorted({key for edge in named for key in edge})

    layer_of = {key: number for number, layer in enumerate(layers_of(keys, named)) for key in layer}

    assert all(layer_of[parent] < layer_of[child] for parent, child in named)


def test_a_long_chain_is_drawn_without_getting_lost() -> None:
    chain = [(str(number), str(number + 1)) for number in range(3000)]

    assert len(layers_of([str(number) for number in range(3001)], chain)) == 3001


def test_a_node_is_a_link_with_its_whole_name() -> None:
    name = "a-very-long-name-that-does-not-fit-into-its-box"

    drawn = parsed(graph([Node(key=name, href="/groups/x", detail="2 manifests")], [], label="groups"))

    link = drawn.find("a")
    assert link is not None
    assert link.get("href") == "/groups/x"
    assert link.findtext("title") == f"{name}: 2 manifests"
    assert link.findtext("text") == "a-very-long-name-that…"


def test_a_graph_of_very_many_groups_is_cut_and_marked() -> None:
    edges = tuple((f"parent-{number}", f"child-{number}") for number in range(100))
    many = GroupGraph(tuple(name for edge in edges for name in edge), edges)
    few = GroupGraph(("a", "b"), (("a", "b"),))

    shown = limit_graph(many)

    assert len({name for edge in shown.edges for name in edge}) == MAX_GROUPS_DRAWN
    assert (shown.exact, limit_graph(few)) == (False, few)
