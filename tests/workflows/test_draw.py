"""Graphs drawn as text."""

from hypothesis import given
from hypothesis import strategies as st

from agent.workflows.draw import draw
from agent.workflows.graph import Fanout, Graph, Step
from tests.support.hypothesis_profile import PATIENT


def graph_of(depends_on: dict[str, list[str]]) -> Graph:
    """Make a graph of waiting steps."""
    steps = [
        Step(name=name, kind="wait", depends_on=parents) for name, parents in depends_on.items()
    ]
    return Graph(name="x", steps=steps)


def test_a_diamond() -> None:
    """Two branches part and join again."""
    graph = graph_of({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]})
    assert draw(graph) == [
        "○    a  wait",
        "├─╮",
        "○ │  b  wait",
        "│ ○  c  wait",
        "├─╯",
        "○    d  wait",
    ]


def test_branches_of_different_lengths_and_a_second_root() -> None:
    """A lane goes on past the steps that it does not concern."""
    graph = graph_of({"a": [], "b": ["a"], "c": ["b"], "d": ["a", "c"], "z": [], "y": ["z", "d"]})
    assert draw(graph) == [
        "○    a  wait",
        "├─╮",
        "○ │  b  wait",
        "○ │  c  wait",
        "├─╯",
        "○    d  wait",
        "│ ○  z  wait",
        "├─╯",
        "○    y  wait",
    ]


def test_statuses_groups_and_conditions_are_shown() -> None:
    """The mark and the word of each status, and what makes a step special."""
    graph = Graph(
        name="x",
        steps=[
            Step(name="find", kind="shell"),
            Step(
                name="each",
                kind="python",
                depends_on=["find"],
                fanout=Fanout(items_of="steps.find.output"),
            ),
            Step(name="four", kind="python", depends_on=["each"], fanout=Fanout(count=4)),
            Step(
                name="tell", kind="http", depends_on=["four"], condition="inputs.x", run_on="always"
            ),
        ],
    )
    assert draw(graph, {"find": "succeeded", "each": "running", "four": "failed"}) == [
        "✓  find  shell      succeeded",
        "●  each  python ×n  running    for each of steps.find.output",
        "✗  four  python ×4  failed",
        "○  tell  http       pending    if inputs.x; always",
    ]


def test_a_wide_graph_is_listed() -> None:
    """Too many lanes would tell nothing: each step names what it depends on instead."""
    parents: dict[str, list[str]] = {"root": []}
    parents |= {f"s{n}": ["root"] for n in range(50)}
    parents["join"] = [f"s{n}" for n in range(50)]
    lines = draw(graph_of(parents))
    assert len(lines) == 52
    assert lines[1] == "○  s0    wait  after root"
    assert lines[-1] == "○  join  wait  after s0, s1, s2, s3 and 46 more"


@PATIENT
@given(st.lists(st.sets(st.integers(0, 30), max_size=4), min_size=1, max_size=30))
def test_every_step_is_drawn_once_below_its_parents(parents: list[set[int]]) -> None:
    """For any graph."""
    named = {
        f"s{n}": sorted(f"s{parent}" for parent in chosen if parent < n)
        for n, chosen in enumerate(parents)
    }
    lines = draw(graph_of(named), {})
    names = [next(w for w in line.split() if w.startswith("s")) for line in lines if "wait" in line]
    assert sorted(names) == sorted(named)
    for name, above in named.items():
        assert all(names.index(parent) < names.index(name) for parent in above)


def test_notes_stand_beside_their_steps() -> None:
    """After the status, before what the definition has to say."""
    graph = Graph(name="x", steps=[Step(name="a", kind="wait", condition="true")])
    assert draw(graph, {"a": "waiting"}, {"a": "for long"}) == [
        "◔  a  wait  waiting    for long; if true"
    ]
