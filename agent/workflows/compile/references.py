"""Checks the names that a workflow's templates read: will they exist at run time?"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from agent.core.state_names import RESERVED, find_name_problem
from agent.workflows.compile import template_hints
from agent.workflows.diagnostics import Problem, Suggestions, did_you_mean
from agent.workflows.templates.expressions import Expression, parse_expression, parse_template
from agent.workflows.templates.limits import TemplateError
from agent.workflows.templates.templates import is_template
from agent.workflows.yaml.source import Path, Source

ROOTS: Final = ("steps", "inputs", "trigger", "task", "state", "now", "today")
TIME_ROOTS: Final = ("now", "today")
ITEM_ROOTS: Final = ("item", "parallel_index", "parallel_count")
STEP_PARTS: Final = ("output", "status", "error")
TASK_PARTS: Final = ("id", "workflow", "version")
_MOST_LISTED: Final = 50
_READ_BY_NAME: Final = {
    "steps": "steps are read by name, as in steps.fetch.output",
    "state": "values of state are read by name, as in state.last_price",
}
_STATE_METHODS: Final = "give a default by a filter: state.NAME | default(0)"


class Reads(NamedTuple):
    """The names that templates read: steps, and values of `state`; and whether they read the time."""

    steps: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    now: bool = False

    def joined(self, other: "Reads") -> "Reads":
        """Return the names that both read, each once."""
        return Reads(
            tuple(dict.fromkeys((*self.steps, *other.steps))),
            tuple(dict.fromkeys((*self.state, *other.state))),
            self.now or other.now,
        )


class Ancestry:
    """The upstream steps of each step, as one integer of bits per step.

    For a step in a cycle, or downstream of one, every step counts as upstream: the cycle is reported
    once, and not again for every template in it.
    """

    def __init__(self, depends_on: Mapping[str, Sequence[str]], *, has_cycle: bool = False) -> None:
        self._depends_on = depends_on
        self._unordered = _unordered_steps(depends_on) if has_cycle else frozenset()
        self._number = {name: number for number, name in enumerate(depends_on)}
        self._above: dict[str, int] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._depends_on

    @property
    def names(self) -> list[str]:
        """All steps, in order."""
        return list(self._depends_on)

    def is_upstream(self, name: str, of: str) -> bool:
        """Whether one step has surely ended before another starts."""
        if of in self._unordered or name in self._depends_on[of]:
            return True
        return bool(self._above_of(of) >> self._number[name] & 1)

    def _above_of(self, name: str) -> int:
        pending = [name]
        while pending:
            current = pending[-1]
            parents = [p for p in self._depends_on[current] if p in self._number]
            missing = [p for p in parents if p not in self._above]
            if missing:
                pending += missing
                continue
            bits = 0
            for parent in parents:
                bits |= self._above[parent] | 1 << self._number[parent]
            self._above[current] = bits
            pending.pop()
        return self._above[name]


def _unordered_steps(depends_on: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return the steps that have no topological order: those in cycles and downstream of them."""
    dependents: dict[str, list[str]] = {name: [] for name in depends_on}
    waiting: dict[str, int] = {}
    for name, parents in depends_on.items():
        known = {parent for parent in parents if parent in depends_on}
        waiting[name] = len(known)
        for parent in known:
            dependents[parent].append(name)
    ordered = [name for name, count in waiting.items() if count == 0]
    for name in ordered:
        for dependent in dependents[name]:
            waiting[dependent] -= 1
            if waiting[dependent] == 0:
                ordered.append(dependent)
    return frozenset(depends_on) - frozenset(ordered)


class References:
    """Checks the names in templates, and collects the steps that they read."""

    def __init__(self, source: Source, ancestry: Ancestry, inputs: Mapping[str, Any]) -> None:
        self._source = source
        self._ancestry = ancestry
        self._inputs = inputs
        self._near = Suggestions(ancestry.names)
        self._near_inputs = Suggestions(inputs)
        self.problems: list[Problem] = []

    def near_step(self, name: str, but: str | None = None) -> str | None:
        """Return the nearest name of a step as a hint, or None."""
        return self._near.near(name, but)

    def check_value(
        self,
        value: Any,
        path: Path,
        step: str | None,
        *,
        has_items: bool = False,
        also: Collection[str] = (),
    ) -> Reads:
        """Check every template in a value; return the names they read.

        `also` are further names that are known in it.
        """
        reads = Reads()
        for place, text in templates_in(value, path):
            parsed = self._parsed(text, place, also)
            if parsed is not None:
                reads = reads.joined(self._check(parsed, place, step, has_items, also))
        return reads

    def check_expression(
        self,
        text: str,
        path: Path,
        step: str | None,
        *,
        has_items: bool = False,
        also: Collection[str] = (),
    ) -> Reads:
        """Check an expression without braces; return the names it reads.

        `also` are further names that are known in it.
        """
        parsed = self._parsed(text, path, also, parse_expression)
        return Reads() if parsed is None else self._check(parsed, path, step, has_items, also)

    def _parsed(
        self,
        text: str,
        path: Path,
        also: Collection[str],
        parse: Callable[[str], Expression] = parse_template,
    ) -> Expression | None:
        """Return a parsed text; report mistakes in it, and go on with the probable intention."""
        roots = {*ROOTS, *ITEM_ROOTS, *also}
        # Most texts have no hyphen: no search for names.
        for written, meant in template_hints.hyphenated(text, roots) if "-" in text else ():
            message = f"{written} is a subtraction: names in templates have no hyphens"
            self._refuse(path, message, f"write {meant}")
            text = text.replace(written, meant)
        try:
            return parse(text)
        except TemplateError as error:
            corrected = template_hints.corrected(text)
            if corrected is None:
                self._refuse(path, str(error))
                return None
            meant, rule = corrected
            self._refuse(path, str(error), f"{rule}: {meant}")
            return parse(meant)

    def _refuse(self, path: Path, message: str, hint: str | None = None) -> None:
        self.problems.append(self._source.problem(path, message, hint, at_value=True))

    def _check(
        self,
        parsed: Expression,
        path: Path,
        step: str | None,
        has_items: bool,
        also: Collection[str] = (),
    ) -> Reads:
        steps: dict[str, None] = {}
        state: dict[str, None] = {}
        for lookup in parsed.lookups:
            if lookup[0] in also:
                continue
            problem = self._name_problem(lookup, step, has_items)
            if problem is not None:
                self._refuse(path, *problem)
            elif lookup[0] == "steps" and len(lookup) > 1:
                steps[str(lookup[1])] = None
            elif lookup[0] == "state" and len(lookup) > 1:
                state[str(lookup[1])] = None
        for root, what in _READ_BY_NAME.items():
            if root in parsed.dynamic:
                self._refuse(path, f"{what}, so that it can be checked")
        reads_now = any(lookup[0] in TIME_ROOTS for lookup in parsed.lookups)
        return Reads(tuple(steps), tuple(state), reads_now)

    def _name_problem(
        self, lookup: Sequence[str | int], step: str | None, has_items: bool
    ) -> tuple[str, str | None] | None:
        root = lookup[0]
        if root in ITEM_ROOTS:
            text = f"{root!r} is known only inside the items of a step with foreach or parallel"
            return None if has_items else (text, None)
        if root not in ROOTS:
            return self._unknown_root(root)
        if root in TIME_ROOTS:
            return _time_problem(root, lookup, step)
        if len(lookup) == 1:
            return None
        if root == "inputs":
            if lookup[1] in self._inputs:
                return None
            near = self._near_inputs.near(str(lookup[1]))
            listed = ", ".join(list(self._inputs)[:_MOST_LISTED])
            hint = near or (f"there are {listed}" if listed else None)
            return f"the workflow declares no input {str(lookup[1])!r}", hint
        if root == "task":
            # Only a step has attempts: the workflow's output has none.
            known = TASK_PARTS if step is None else (*TASK_PARTS, "attempt")
            return self._unknown(lookup[1], known, "a task has no")
        if root == "state":
            return _state_problem(lookup, step)
        return self._step_problem(lookup, step) if root == "steps" else None

    def _unknown_root(self, root: str | int) -> tuple[str, str | None]:
        hint = did_you_mean(root, ROOTS)
        if root in ("tasks", "nodes") or root in self._ancestry:
            hint = "a step's output is read as steps.NAME.output"
        return f"there is no {root!r} in templates", hint or f"there are {', '.join(ROOTS)}"

    def _step_problem(
        self, lookup: Sequence[str | int], step: str | None
    ) -> tuple[str, str | None] | None:
        name = str(lookup[1])
        if name not in self._ancestry:
            if name.replace("_", "-") in self._ancestry:
                # That step's name is a problem of its own.
                return None
            return f"there is no step {name!r}", self.near_step(name)
        if len(lookup) > 2 and lookup[2] not in STEP_PARTS:
            return f"steps.{name} has no {str(lookup[2])!r}", _part_hint(name, str(lookup[2]))
        if name == step:
            return f"the step {name!r} cannot read its own output", "in set_state it is output"
        if step is None or self._ancestry.is_upstream(name, step):
            return None
        return f"the step {name!r} is not upstream of {step!r}", f"add {name} to depends_on"

    def _unknown(
        self, name: str | int, known: Sequence[str], words: str
    ) -> tuple[str, str | None] | None:
        if name in known:
            return None
        hint = did_you_mean(name, known) or (f"there are {', '.join(known)}" if known else None)
        return f"{words} {str(name)!r}", hint


def _part_hint(step: str, part: str) -> str:
    """Return what to write for a part that no step has."""
    from difflib import get_close_matches

    close = get_close_matches(part, STEP_PARTS, n=1)
    if close:
        return f"write steps.{step}.{close[0]}"
    return f"a step has {', '.join(STEP_PARTS)}: write steps.{step}.output.{part}"


def _time_problem(
    root: str | int, lookup: Sequence[str | int], step: str | None
) -> tuple[str, str | None] | None:
    if step is None:
        return f"{root} is read by steps only", "read it in a step, and take that step's output"
    if len(lookup) > 1:
        return (
            f"{root} is a text, and has no {str(lookup[1])!r}",
            "it is as in 2026-03-01T08:00:00Z",
        )
    return None


def _state_problem(lookup: Sequence[str | int], step: str | None) -> tuple[str, str | None] | None:
    if step is None:
        return "state is read by steps only", "read it in a step, and take that step's output"
    name = str(lookup[1])
    if name in RESERVED:
        return f"state has no {name!r}", _STATE_METHODS
    problem = find_name_problem(name)
    return None if problem is None else (problem, None)


def templates_in(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield every template in a value, with its place."""
    if isinstance(value, str):
        if is_template(value):
            yield path, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from templates_in(member, (*path, key))
    elif isinstance(value, list):
        for number, member in enumerate(value):
            yield from templates_in(member, (*path, number))
