"""Drawings of graphs: nothing overlaps, every dependency is shown, and large graphs stay small."""

import itertools
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.server.pages.drawings import graph_drawing as drawing
from agent.server.pages.drawings.crossing_reduction import crossings, order_rows
from agent.server.pages.drawings.folding import MAX_BOXES_WIDE, SMALL, GraphStep, fold
from agent.server.pages.drawings.graph_drawing import Node, draw_graph
from agent.server.pages.drawings.layered_graph import layered, layers_of, reduced
from agent.server.pages.drawings.text_width import fit, text_width

STATUSES = ["succeeded", "failed", "running", "waiting", "paused", "pending", "skipped", "kept"]


@st.composite
def graphs(draw: st.DrawFn, most: int = 24) -> list[Node]:
    """Draw a graph whose steps depend on earlier ones."""
    chance = draw(st.randoms(use_true_random=False))
    nodes = []
    for number in range(draw(st.integers(1, most))):
        parents = chance.sample(range(number), min(number, chance.randrange(5)))
        letters = chance.choice(["il", "mw", "step_"]) * chance.randint(1, 15)
        step = GraphStep(f"{letters}{number}", chance.choice(STATUSES), tuple(sorted(parents)))
        nodes.append(Node(step, chance.choice(["", "×12", "9/12"])))
    return nodes


def _wide(count: int, status: str = "succeeded") -> list[Node]:
    """Return a first step, many after it, and a last one after all of these."""
    middle = range(1, count - 1)
    return [
        Node(GraphStep("first", "succeeded")),
        *(Node(GraphStep(f"step_{number}", status, (0,))) for number in middle),
        Node(GraphStep("last", "pending", tuple(middle))),
    ]


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_boxes_never_overlap_and_stand_inside_the_drawing(nodes: list[Node]) -> None:
    """Boxes of one row are apart, and no box reaches over the edge."""
    found = draw_graph(nodes)
    for box in found.boxes:
        assert box.x >= 0
        assert box.x + box.width <= found.width
        assert box.y + drawing.BOX_HEIGHT <= found.height
    rows: dict[float, list[drawing.Box]] = {}
    for box in found.boxes:
        rows.setdefault(box.y, []).append(box)
    for row in rows.values():
        row.sort(key=lambda box: box.x)
        for left, right in itertools.pairwise(row):
            assert left.x + left.width + drawing.BOX_GAP <= right.x + 0.2


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_each_box_stands_below_those_it_depends_on(nodes: list[Node]) -> None:
    """Edges go down; the dependencies that they show are exactly those of the steps."""
    found = draw_graph(nodes)
    for edge in found.edges:
        source, target = found.boxes[edge.source], found.boxes[edge.target]
        assert source.y < target.y
        start = re.match(r"M([\d.]+) ([\d.]+)", edge.path)
        assert start is not None
        assert float(start[1]) == pytest.approx(source.x + source.width / 2, abs=0.2)
        assert float(start[2]) == pytest.approx(source.y + drawing.BOX_HEIGHT, abs=0.2)
        assert float(re.split(r"[ V]", edge.path)[-1]) == pytest.approx(target.y, abs=0.2)
    box_of = {name: number for number, box in enumerate(found.boxes) for name in box.names}
    reach = _reachable(len(found.boxes), [(edge.source, edge.target) for edge in found.edges])
    for node in nodes:
        for parent in node.step.parents:
            above, below = box_of[nodes[parent].step.name], box_of[node.step.name]
            assert above == below or below in reach[above]


def _reachable(count: int, edges: list[tuple[int, int]]) -> list[set[int]]:
    below: list[set[int]] = [set() for _ in range(count)]
    for _ in range(count):
        for source, target in edges:
            below[source] |= {target} | below[target]
    return below


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_every_step_has_its_place_in_one_box(nodes: list[Node]) -> None:
    """Folding loses no step and shows none twice."""
    folded = fold([node.step for node in nodes])
    members = sorted(member for each in folded.folds for member in each.members)
    assert members == list(range(len(nodes)))


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_text_never_overflows_its_box(nodes: list[Node]) -> None:
    """Name and note end before the right edge of the box."""
    for box in draw_graph(nodes).boxes:
        right = drawing.TEXT_LEFT + text_width(box.text, drawing.FONT_PX)
        if box.note:
            assert box.note_x >= right
            right = box.note_x + text_width(box.note, drawing.NOTE_PX)
        assert right <= box.width - drawing.TEXT_RIGHT + 0.2
        assert box.width <= drawing.MAX_WIDTH + 0.2


@given(st.text(max_size=60), st.floats(20, 200))
def test_a_text_that_was_fitted_fits(text: str, width: float) -> None:
    """What is too long is cut and ends in an ellipsis."""
    fitted = fit(text, 13, width)
    assert text_width(fitted, 13) <= width
    assert fitted == text or fitted.endswith("…")


def test_a_dependency_that_follows_from_others_is_not_drawn() -> None:
    """A → b → c makes a → c redundant."""
    assert reduced([[], [0], [0, 1]]) == [[], [0], [1]]


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_a_reduced_graph_has_the_same_layers(nodes: list[Node]) -> None:
    """Redundant dependencies never decide how deep a step is."""
    parents = [node.step.parents for node in nodes]
    assert layers_of(reduced(parents)) == layers_of(parents)


@settings(max_examples=40, deadline=None)
@given(graphs())
def test_sweeps_never_add_crossings(nodes: list[Node]) -> None:
    """The order that is kept has at most the crossings of the one as written."""
    graph = layered(reduced([node.step.parents for node in nodes]))
    assert crossings(graph, order_rows(graph)) <= crossings(graph, graph.rows())


def test_crossed_pairs_are_untangled() -> None:
    """Two pairs of steps that cross as written are drawn side by side."""
    graph = layered([[], [], [1], [0]])
    assert crossings(graph, graph.rows()) == 1
    assert crossings(graph, order_rows(graph)) == 0


def test_a_small_graph_shows_every_step() -> None:
    """Up to twelve steps side by side nothing is folded."""
    found = draw_graph(_wide(8))
    assert [box.step for box in found.boxes].count(None) == 0
    assert len(found.edges) == 12


def test_forty_steps_in_layers_of_eight_keep_their_names() -> None:
    """Each of them has its box, whatever its status."""
    nodes = [
        Node(
            GraphStep(f"part_{number}", STATUSES[number % 8], (number - 8,) if number >= 8 else ())
        )
        for number in range(40)
    ]
    found = draw_graph(nodes)
    assert sorted(box.text for box in found.boxes) == sorted(node.step.name for node in nodes)


def test_a_wide_layer_is_stacked_with_its_failed_step_apart() -> None:
    """Of fifty equal steps one box remains, and the failed one has its own."""
    nodes = _wide(52)
    nodes[7] = Node(GraphStep("step_7", "failed", (0,)))
    found = draw_graph(nodes)
    assert [box.text for box in found.boxes] == ["first", "49 done", "step_7", "last"]
    assert found.boxes[1].is_stack


def test_many_running_steps_are_stacked_too() -> None:
    """No layer is wider than six boxes, whatever its steps do."""
    nodes = _wide(40)
    for number in range(1, 39):
        step = nodes[number].step
        nodes[number] = Node(GraphStep(step.name, STATUSES[number % 8], step.parents))
    rows: dict[float, int] = {}
    for box in draw_graph(nodes).boxes:
        rows[box.y] = rows.get(box.y, 0) + 1
    assert max(rows.values()) <= MAX_BOXES_WIDE


def test_a_long_chain_folds_around_what_runs() -> None:
    """Five hundred steps in a row become five boxes."""
    nodes = [
        Node(
            GraphStep(
                f"step_{number}",
                "running" if number == 250 else "succeeded" if number < 250 else "pending",
                (number - 1,) if number else (),
            )
        )
        for number in range(500)
    ]
    found = draw_graph(nodes)
    assert [box.text for box in found.boxes] == [
        "249 done",
        "step_249",
        "step_250",
        "step_251",
        "248 not started",
    ]


def test_a_marked_step_is_never_stacked() -> None:
    """A step with a question keeps its box in a large definition."""
    nodes = [
        Node(
            GraphStep(
                f"step_{number}", "defined", (number - 1,) if number else (), is_marked=number == 70
            )
        )
        for number in range(SMALL + 40)
    ]
    assert "step_70" in [box.text for box in draw_graph(nodes).boxes]


def test_the_same_graph_is_always_drawn_the_same() -> None:
    """A page that is rendered again changes only where its task did."""
    assert draw_graph(_wide(30)) == draw_graph(_wide(30))


def test_five_hundred_steps_are_drawn_quickly() -> None:
    """A generous bound on processor time: the page of a large task must not block others."""
    width = 20
    nodes = []
    for number in range(500):
        layer = number // width
        parents = (
            tuple((layer - 1) * width + (number + k) % width for k in range(3)) if layer else ()
        )
        status = "running" if number % 100 == 3 else "succeeded" if number < 250 else "pending"
        nodes.append(Node(GraphStep(f"step_{number}", status, parents)))
    began = time.process_time()
    found = draw_graph(nodes)
    assert time.process_time() - began < 0.2
    assert len(found.boxes) < 100
