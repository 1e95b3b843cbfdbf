"""The compiled graph: the one format that tasks are started from, and that YAML compiles to.

It is plain JSON with every default filled in and durations in seconds. It is checked before it is
stored, and immutable. Steps are ordered: a step's position in the list is its index in the database.
"""

import json
from contextlib import suppress
from functools import cached_property
from typing import Annotated, Any, Literal

from agent.core import backoff
from agent.core.ids import canonical_json, content_hash
from agent.core.quick_classes.quick_dataclasses import dataclass, field
from agent.core.state_names import SHARED, workflow_scope
from agent.workflows.checked_record import CheckedRecord, Within
from agent.workflows.templates.templates import has_templates

NAME_PATTERN = r"^[a-z_][a-z0-9_]*$"
WORKFLOW_NAME_PATTERN = r"^[a-z_][a-z0-9_-]*$"
MAX_NAME_CHARS = 100
TOOL_PREFIX = "workflow_"
"""No tool of the agent's own begins with it."""
MAX_TOOL_CHARS = 64
"""The longest name of a tool that providers of models accept."""
MAX_STEPS = 20_000
MAX_ITEMS = 10_000
_MOST_SHOWN = 20

OnUnknown = Literal["retry", "reconcile", "ask", "fail"]


@dataclass(frozen=True, kw_only=True)
class RetryPolicy(CheckedRecord):
    """How often and how soon a step is retried."""

    max_attempts: Annotated[int, Within(ge=1, le=1000)] = 3
    delay_seconds: Annotated[float, Within(ge=0, le=86_400)] = 2.0
    factor: Annotated[float, Within(ge=1, le=100)] = 2.0
    max_delay_seconds: Annotated[float, Within(ge=0, le=604_800)] = 300.0
    jitter: bool = True

    def delay_after(
        self, attempt: int, fraction: float, minimum_seconds: float | None = None
    ) -> float:
        """Return how many seconds to wait after a failed attempt.

        With jitter, `fraction` in [0, 1) spreads the retries of many steps over the whole delay. A
        remote's `Retry-After` is the minimum: a request sent sooner would be refused again.
        """
        ceiling = backoff.delay_seconds(
            attempt,
            first_seconds=self.delay_seconds,
            longest_seconds=self.max_delay_seconds,
            factor=self.factor,
        )
        delay = ceiling * fraction if self.jitter else ceiling
        return max(delay, minimum_seconds or 0.0)


@dataclass(frozen=True, kw_only=True)
class Fanout(CheckedRecord):
    """Makes a step a group of items: by a fixed count, or an expression for a count or a list."""

    count: Annotated[int, Within(ge=0, le=MAX_ITEMS)] | None = None
    count_of: str | None = None
    items_of: str | None = None
    items: list[Any] | None = None
    concurrency: Annotated[int, Within(ge=1, le=MAX_ITEMS)] | None = None

    def __post_init__(self) -> None:
        ways = [self.count, self.count_of, self.items_of, self.items]
        if sum(way is not None for way in ways) != 1:
            raise ValueError("give exactly one of count, count_of, items_of, items")


@dataclass(frozen=True, kw_only=True)
class Step(CheckedRecord):
    """One node: its kind, its dependencies, and its policies for failures."""

    name: Annotated[str, Within(pattern=NAME_PATTERN, max_length=MAX_NAME_CHARS)]
    kind: str
    config: dict[str, Any] = field(default_factory=dict)
    depends_on: list[str] = field(default_factory=list)
    condition: str | None = None
    """An expression (`if:`); false skips the step, and its dependents run."""
    run_on: Literal["success", "failure", "always"] = "success"
    fanout: Fanout | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeout_seconds: Annotated[float, Within(gt=0, le=31_536_000)] | None = None
    has_no_timeout: bool = False
    """Whether an attempt may take any time (`timeout: none`), also longer than `attempt_seconds`."""
    on_unknown: OnUnknown | None = None
    """None: the kind's own default."""
    output_schema: dict[str, Any] | None = None
    refers_to: list[str] = field(default_factory=list)
    """Steps whose outputs its templates name, beyond its dependencies."""
    budget: dict[str, Any] | None = None
    approval: dict[str, Any] | None = None
    set_state: dict[str, Any] = field(default_factory=dict)
    """Templates of the values that it writes to `state` when it succeeds, by name."""
    reads_state: list[str] = field(default_factory=list)
    """The values of `state` that its templates name; those of `set_state` too."""
    sets_from: list[str] = field(default_factory=list)
    """The values of `state` that the templates of `set_state` name."""
    reads_now: bool = False
    """Whether its templates name `now` or `today`."""
    executor: dict[str, Any] | None = None
    """Where its code runs: the executor's name and its options. None: as the configuration says."""

    @classmethod
    def trusted(cls, document: dict[str, Any]) -> "Step":
        """Return the step of a document that was checked before it was stored."""
        parts: dict[str, Any] = {}
        if "retry" in document:
            parts["retry"] = RetryPolicy.trusted(document["retry"])
        if document.get("fanout") is not None:
            parts["fanout"] = Fanout.trusted(document["fanout"])
        return cls(**{**document, **parts})

    @property
    def runs_elsewhere(self) -> bool:
        """Whether its code runs outside of the worker's own process, which it cannot crash then."""
        return self.executor is not None and self.executor.get("name") != "local"

    @cached_property
    def has_templates(self) -> bool:
        """Whether its configuration has anything to render at an attempt's start."""
        return has_templates(self.config)


@dataclass(frozen=True, kw_only=True)
class Graph(CheckedRecord):
    """A workflow, compiled."""

    name: Annotated[str, Within(pattern=WORKFLOW_NAME_PATTERN, max_length=MAX_NAME_CHARS)]
    description: str | None = None
    steps: Annotated[list[Step], Within(min_length=1, max_length=MAX_STEPS)]
    inputs: dict[str, Any] = field(default_factory=dict)
    output: Any = None
    """A template over the steps' outputs; None gives the outputs of the last steps by name."""
    max_parallel: Annotated[int, Within(ge=1, le=MAX_STEPS)] | None = None
    fail_fast: bool = True
    timeout_seconds: Annotated[float, Within(gt=0, le=31_536_000)] | None = None
    """The task's wall-clock time."""
    priority: Literal["high", "normal", "low"] = "normal"
    budget: dict[str, Any] | None = None
    on: dict[str, Any] = field(default_factory=dict)
    shared: list[str] = field(default_factory=list)
    """The values of `state` that all workflows share; the others are its own."""

    def __post_init__(self) -> None:
        problem = find_problem(self.steps)
        if problem is not None:
            raise ValueError(problem)

    @classmethod
    def trusted(cls, document: dict[str, Any]) -> "Graph":
        """Return the graph of a document that was checked before it was stored."""
        return cls(**{**document, "steps": [Step.trusted(step) for step in document["steps"]]})

    @classmethod
    def stored(cls, text: str, text_hash: str) -> "Graph":
        """Return a stored graph; a text that has its recorded hash was checked before.

        Any other text is checked; raise pydantic's `ValidationError`.
        """
        if content_hash(text) == text_hash:
            # A graph of a later version may have fields that this one does not know.
            with suppress(TypeError, KeyError, ValueError):
                return cls.trusted(json.loads(text))
        return cls.model_validate_json(text)

    @property
    def code(self) -> dict[str, str] | None:
        """The hash of each step's code, where the graph was read from a file; None: not known.

        It is no part of the graph's text. A version has the code that it was recorded with.
        """
        code: dict[str, str] | None = self.__dict__.get("_code")
        return code

    @property
    def code_text(self) -> str | None:
        """The hashes of its steps' code as they are stored."""
        return None if self.code is None else canonical_json(self.code)

    def note_code(self, hashes: dict[str, str]) -> None:
        """Set the hashes of the steps' code; the loader of a file does this once."""
        # Not a field: the record is frozen, and its text and hash are without it.
        self.__dict__["_code"] = hashes

    @property
    def takes_text(self) -> bool:
        """Whether free text in a chat starts it."""
        return bool((self.on.get("chat") or {}).get("text"))

    @property
    def mcp_tool(self) -> str | None:
        """The name under which it is a tool of the MCP server; None: it is not one."""
        return tool_name(self.name) if self.on.get("mcp") else None

    @cached_property
    def sets_state(self) -> bool:
        """Whether any step has `set_state`."""
        return any(step.set_state for step in self.steps)

    @cached_property
    def has_workers(self) -> bool:
        """Whether any step is for external workers."""
        return any(step.kind == "worker" for step in self.steps)

    @cached_property
    def reads_state(self) -> bool:
        """Whether a template of any step reads `state`."""
        return any(step.reads_state for step in self.steps)

    @cached_property
    def may_write_state(self) -> bool:
        """Whether any step has `set_state`, or code that may write."""
        return self.sets_state or any(step.kind in ("python", "agent") for step in self.steps)

    def state_scope(self, name: str) -> str:
        """Return the scope of a value of `state`."""
        return SHARED if name in self.shared else workflow_scope(self.name)

    @cached_property
    def index_of(self) -> dict[str, int]:
        """Each step's index by its name."""
        return {step.name: index for index, step in enumerate(self.steps)}

    @cached_property
    def parents(self) -> list[list[int]]:
        """For each step, the indexes of those that it depends on."""
        return [[self.index_of[name] for name in step.depends_on] for step in self.steps]

    @cached_property
    def sees(self) -> list[tuple[str, ...]]:
        """For each step, the names of those whose results its templates may read."""
        return [tuple(dict.fromkeys((*s.depends_on, *s.refers_to))) for s in self.steps]

    @cached_property
    def dependents(self) -> list[list[int]]:
        """For each step, the indexes of the steps that depend on it."""
        dependents: list[list[int]] = [[] for _ in self.steps]
        for index, parents in enumerate(self.parents):
            for parent in parents:
                dependents[parent].append(index)
        return dependents

    def downstream(self, index: int) -> frozenset[int]:
        """Return a step and all steps that depend on it, directly or through others."""
        return _reachable(self.dependents, index)

    def upstream(self, index: int) -> frozenset[int]:
        """Return a step and all steps that it depends on, directly or through others."""
        return _reachable(self.parents, index)

    @cached_property
    def order(self) -> list[int]:
        """The indexes of all steps in topological order."""
        waiting = [len(parents) for parents in self.parents]
        order = [index for index, count in enumerate(waiting) if count == 0]
        for index in order:
            for dependent in self.dependents[index]:
                waiting[dependent] -= 1
                if waiting[dependent] == 0:
                    order.append(dependent)
        return order

    @cached_property
    def text(self) -> str:
        """The graph as it is stored."""
        return canonical_json(self.model_dump(exclude_defaults=True))

    @cached_property
    def hash(self) -> str:
        """The hash of the stored text: a change of it is a new version."""
        return content_hash(self.text)


def tool_name(workflow: str) -> str:
    """Return the name of a workflow as a tool of the MCP server."""
    return TOOL_PREFIX + workflow


def _reachable(edges: list[list[int]], start: int) -> frozenset[int]:
    reached = {start}
    queue = [start]
    while queue:
        new = set(edges[queue.pop()]) - reached
        reached |= new
        queue += new
    return frozenset(reached)


def find_problem(steps: list[Step]) -> str | None:
    """Return why these steps are not a graph: a repeated name, a missing step, a cycle; None if they are."""
    seen: set[str] = set()
    for step in steps:
        if step.name in seen:
            return f"two steps are called {step.name!r}"
        seen.add(step.name)
    for step in steps:
        for name in step.depends_on:
            if name not in seen:
                return f"step {step.name!r} depends on {name!r}, which does not exist"
        if len(set(step.depends_on)) != len(step.depends_on):
            return f"step {step.name!r} names a dependency twice"
    cycles = find_cycles({step.name: step.depends_on for step in steps})
    return write_cycle(cycles[0]) if cycles else None


def find_cycles(depends_on: dict[str, list[str]]) -> list[list[str]]:
    """Return cycles that share no step, as paths that end with their first step.

    Every set of steps that depend on each other has at least one of its cycles among them.
    """
    cycles: list[list[str]] = []
    visited: set[str] = set()
    for start, first in depends_on.items():
        if start in visited:
            continue
        path = [start]
        position = {start: 0}
        covered_up_to = [-1]
        """For each position on the path, the last one up to it that is in a cycle found before."""
        stack = [iter(first)]
        while stack:
            parent = next(stack[-1], None)
            if parent is None:
                stack.pop()
                covered_up_to.pop()
                name = path.pop()
                del position[name]
                visited.add(name)
            elif parent in position:
                begin = position[parent]
                if covered_up_to[-1] < begin:
                    cycles.append([*path[begin:], parent])
                    covered_up_to[begin:] = range(begin, len(path))
            elif parent not in visited and parent in depends_on:
                position[parent] = len(path)
                path.append(parent)
                covered_up_to.append(covered_up_to[-1])
                stack.append(iter(depends_on[parent]))
    return cycles


def write_cycle(cycle: list[str]) -> str:
    """Write a cycle as a path; a long one is shortened to its two ends."""
    if len(cycle) > _MOST_SHOWN:
        half = _MOST_SHOWN // 2
        more = f"... {len(cycle) - 2 * half:,} more ..."
        cycle = [*cycle[:half], more, *cycle[-half:]]
    return "the steps depend on each other in a cycle: " + " -> ".join(cycle)
