"""The golden set: small tasks of every shape, and how each must end."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from agent.workflows.graph import Fanout, Graph, RetryPolicy, Step

# Every injected crash counts as an attempt, and no crash may use up what a shape needs itself.
AT_ONCE: Final = RetryPolicy(max_attempts=9, delay_seconds=0, jitter=False)


def step(name: str, function: str, after: Iterable[str] = (), **options: Any) -> Step:
    """Return a step that calls a function of these tests."""
    config = {"call": f"tests.crash.functions:{function}", **options.pop("config", {})}
    return Step(
        name=name, kind="python", config=config, depends_on=list(after), retry=AT_ONCE, **options
    )


def once(name: str, after: Iterable[str] = ()) -> Step:
    """Return a step that is an effect as a whole."""
    return step(name, "once", after, config={"effect": "once"})


COUNTING: Final[dict[str, Any]] = {
    "set_state": {"counter": "{{ state.counter | default(0) + 1 }}", "last": "{{ output }}"},
    "reads_state": ["counter"],
    "sets_from": ["counter"],
}


@dataclass(frozen=True)
class Shape:
    """A task, the status it ends with, and the effects it has."""

    steps: list[Step]
    once: list[str]
    """Effects that happen exactly once."""
    again: list[str] = field(default_factory=list)
    """Steps that may be repeated, and run at least once."""
    status: str = "succeeded"
    child: list[Step] = field(default_factory=list)
    child_once: list[str] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)
    """How many versions of each value of `state` it writes."""

    def graph(self, name: str) -> Graph:
        """Return the workflow."""
        return Graph(name=name, steps=self.steps, **self.options)

    def child_graph(self) -> Graph | None:
        """Return the workflow that one of its steps starts, if one does."""
        return Graph(name="child", steps=self.child) if self.child else None


SHAPES: Final[dict[str, Shape]] = {
    "linear": Shape(
        [step("one", "touch"), once("two", ["one"]), step("three", "act", ["two"])],
        once=["two", "three"],
        again=["one"],
    ),
    "diamond": Shape(
        [
            step("top", "touch"),
            step("left", "act", ["top"]),
            once("right", ["top"]),
            step("bottom", "act", ["left", "right"]),
        ],
        once=["left", "right", "bottom"],
        again=["top"],
    ),
    "group": Shape(
        [
            step("many", "act", fanout=Fanout(count=4, concurrency=2)),
            step("after", "touch", ["many"]),
        ],
        once=[f"many[{number}]" for number in range(4)],
        again=["after"],
        options={"max_parallel": 3},
    ),
    "retrying": Shape(
        [step("stubborn", "act_at_last"), step("after", "touch", ["stubborn"])],
        once=["stubborn"],
        again=["after"],
    ),
    "failing": Shape(
        [
            step("first", "act"),
            step("broken", "fail", ["first"]),
            step("never", "act", ["broken"]),
            step("tidy", "act", ["broken"], run_on="always"),
            once("tell", ["broken"]).model_copy(update={"run_on": "failure"}),
        ],
        once=["first", "tidy", "tell"],
        status="failed",
    ),
    "timer": Shape(
        [
            step("before", "act"),
            Step(name="nap", kind="wait", config={"duration": 0.03}, depends_on=["before"]),
            once("after", ["nap"]),
        ],
        once=["before", "after"],
    ),
    "asking": Shape(
        [step("unheard", "act_unheard"), step("after", "act", ["unheard"])],
        once=["unheard", "after"],
    ),
    "calls": Shape(
        [step("thrice", "act_thrice"), step("after", "touch", ["thrice"])],
        once=["thrice 0", "thrice 1", "thrice 2"],
        again=["after"],
    ),
    "child": Shape(
        [
            Step(name="sub", kind="workflow", config={"name": "child"}, retry=AT_ONCE),
            once("after", ["sub"]),
        ],
        once=["after"],
        child=[step("inner", "act"), step("last", "act", ["inner"])],
        child_once=["inner", "last"],
    ),
    "state": Shape(
        [
            once("count").model_copy(update=COUNTING),
            step("code", "keep", ["count"]),
            step("after", "touch", ["code"]).model_copy(update=COUNTING),
        ],
        once=["count", "code"],
        again=["after"],
        writes={"counter": 2, "last": 2, "note": 2},
    ),
}
