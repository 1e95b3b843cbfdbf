"""Compiles a workflow file to a graph, or reports all its problems."""

from collections.abc import Mapping
from typing import Any

from agent.core.quick_classes.quick_dataclasses import replace
from agent.workflows.compile import trigger_inputs
from agent.workflows.compile.input_keys import InputKeys
from agent.workflows.compile.models import WORKFLOW_WORDS, WorkflowKeys
from agent.workflows.compile.references import Ancestry, References
from agent.workflows.compile.step_compiler import StepCompiler, budget_document
from agent.workflows.compile.triggers import DURATIONS, find_twins
from agent.workflows.compile.watch_sources import SOURCES
from agent.workflows.diagnostics import Problem, WorkflowError, did_you_mean
from agent.workflows.graph import (
    MAX_TOOL_CHARS,
    TOOL_PREFIX,
    Graph,
    Step,
    find_cycles,
    write_cycle,
)
from agent.workflows.kind_registry import KindSpec, registered
from agent.workflows.validation_messages import find_problems, shown
from agent.workflows.yaml.source import Source, read_source


def compile_text(
    content: str | bytes,
    file: str = "<text>",
    kinds: Mapping[str, KindSpec] | None = None,
    *,
    cpu_seconds: float | None = None,
) -> Graph:
    """Compile the text of a workflow file; raise `WorkflowError` with every problem in it.

    `cpu_seconds` is for texts of strangers: what takes longer has a problem.
    """
    return compile_source(read_source(file, content, cpu_seconds), kinds)


def check_text(
    content: str | bytes, file: str = "<text>", kinds: Mapping[str, KindSpec] | None = None
) -> list[Problem]:
    """Return all problems of the text of a workflow file."""
    try:
        compile_text(content, file, kinds)
    except WorkflowError as error:
        return error.problems
    return []


def compile_source(source: Source, kinds: Mapping[str, KindSpec] | None = None) -> Graph:
    """Compile a scanned file; raise `WorkflowError` with every problem in it."""
    if source.value is None:
        raise WorkflowError([*source.problems, source.problem((), "the file is empty")])
    if not isinstance(source.value, dict):
        message = f"a workflow is a mapping of keys, and this is {shown(source.value)}"
        raise WorkflowError([*source.problems, source.problem((), message)])
    return _Compiler(source, registered() if kinds is None else kinds).compile()


class _Compiler:
    """One compilation: it continues after each problem, so that all are found."""

    def __init__(self, source: Source, kinds: Mapping[str, KindSpec]) -> None:
        self._source = source
        self._kinds = kinds
        # Keys that begin with x- are the author's own, as a place for YAML anchors.
        self._value = {k: v for k, v in source.value.items() if not k.startswith("x-")}
        self.problems: list[Problem] = list(source.problems)

    def compile(self) -> Graph:
        keys, problems = find_problems(WorkflowKeys, self._value, self._source, ())
        self.problems += [self._with_workflow_keys(problem) for problem in problems]
        inputs = self._inputs(keys)
        steps = self._steps(keys, inputs)
        if keys is not None:
            self._check_time(keys)
        if keys is None:
            raise self._error(steps)
        if self.problems:
            # Triggers are checked all the same; they do not depend on the steps.
            on = _trigger_document(keys)
            self._check_triggers(Graph(name=keys.name, steps=[], inputs=inputs, on=on))
            raise self._error(steps)
        graph = self._graph(keys, inputs, steps)
        self._check_triggers(graph)
        if self.problems:
            raise self._error(steps)
        return graph

    def _error(self, steps: list[Step]) -> WorkflowError:
        name = self._value.get("name")
        return WorkflowError(self.problems, steps, name if isinstance(name, str) else None)

    def _with_workflow_keys(self, problem: Problem) -> Problem:
        """Name the keys of a workflow where the file has an unknown one."""
        if (hint := self._indentation_hint(problem.key)) is not None:
            return replace(problem, hint=hint)
        if problem.key and "." not in problem.key and problem.key not in WORKFLOW_WORDS:
            # Without a hint it is one of very many, and none is searched.
            hint = did_you_mean(problem.key, WORKFLOW_WORDS) if problem.hint is not None else None
            if hint is None and problem.key in ("jobs", "tasks", "nodes", "stages"):
                hint = "did you mean 'steps'?"
            message = f"a workflow has no key {problem.key!r}"
            hint = hint or f"there are {', '.join(WORKFLOW_WORDS)}"
            return Problem(problem.file, problem.line, problem.column, problem.key, message, hint)
        return problem

    def _indentation_hint(self, key: str) -> str | None:
        """Return a hint if the steps stand beside `steps`, not below it."""
        if "steps" not in self._value or self._value["steps"] is not None:
            return None
        if key == "steps":
            return "indent the steps, by two spaces each"
        written = self._value.get(key)
        is_step = isinstance(written, dict) and any(name in self._kinds for name in written)
        return f"indent it: a step {key!r} belongs below steps" if is_step else None

    def _inputs(self, keys: WorkflowKeys | None) -> dict[str, Any]:
        """Return the declared inputs; of a file with problems, those that are valid."""
        if keys is not None:
            return {name: declared.document() for name, declared in keys.inputs.items()}
        inputs: dict[str, Any] = {}
        written = self._value.get("inputs")
        for name, value in written.items() if isinstance(written, dict) else ():
            try:
                inputs[name] = InputKeys.model_validate(value).document()
            except ValueError:
                inputs[name] = {}
        return inputs

    def _steps(self, keys: WorkflowKeys | None, inputs: dict[str, Any]) -> list[Step]:
        written = self._value.get("steps")
        if not isinstance(written, dict):
            return []
        depends_on = {name: _dependencies(step) for name, step in written.items()}
        cycles = find_cycles(depends_on)
        self.problems += [
            self._source.problem(("steps", cycle[0], "depends_on"), write_cycle(cycle))
            for cycle in cycles
        ]
        ancestry = Ancestry(depends_on, has_cycle=bool(cycles))
        references = References(self._source, ancestry, inputs)
        defaults = keys.defaults if keys is not None else None
        compiler = StepCompiler(self._source, self._kinds, written, inputs, defaults, references)
        steps = []
        for name, step in written.items():
            self._source.check_time()
            steps.append(compiler.compile(name, step))
        references.check_value(self._value.get("output"), ("output",), None)
        self.problems += compiler.problems + references.problems
        return [step for step in steps if step is not None]

    def _check_time(self, keys: WorkflowKeys) -> None:
        if keys.timeout is not None and keys.budget is not None and keys.budget.time is not None:
            message = "timeout and budget.time are the same; give one of them"
            self.problems.append(self._source.problem(("timeout",), message))

    def _graph(self, keys: WorkflowKeys, inputs: dict[str, Any], steps: list[Step]) -> Graph:
        """Return the graph; every value of it was checked with the keys of the file."""
        budget = keys.budget
        return Graph(
            name=keys.name,
            description=keys.description,
            steps=steps,
            inputs=inputs,
            output=keys.output,
            max_parallel=keys.max_parallel,
            fail_fast=keys.fail_fast,
            timeout_seconds=keys.timeout or (budget.time if budget is not None else None),
            priority=keys.priority,
            budget=budget_document(budget),
            on=_trigger_document(keys),
            shared=sorted(keys.shared),
        )

    def _check_triggers(self, graph: Graph) -> None:
        """Report triggers that are twins, and those whose inputs the workflow does not accept."""
        self.problems += [
            self._source.problem(("on", kind, number), text)
            for kind, number, text in find_twins(graph.on)
        ]
        self.problems += trigger_inputs.find_problems(self._source, graph)
        tool = graph.mcp_tool
        if tool is not None and len(tool) > MAX_TOOL_CHARS:
            longest = MAX_TOOL_CHARS - len(TOOL_PREFIX)
            message = f"as a tool it would be called {tool}, and models accept {MAX_TOOL_CHARS} characters"
            hint = f"give the workflow a name of at most {longest} characters"
            self.problems.append(self._source.problem(("on", "mcp"), message, hint))


def _trigger_document(keys: WorkflowKeys) -> dict[str, Any]:
    if keys.on is None:
        return {}
    document = keys.on.model_dump(
        exclude_none=True, include=keys.on.model_fields_set, by_alias=True
    )
    for trigger in [*document.get("schedule", []), *document.get("watch", [])]:
        source: dict[str, Any] = next((trigger[name] for name in SOURCES if name in trigger), {})
        for keys_of in (trigger, source):
            for name in DURATIONS & keys_of.keys():
                keys_of[f"{name}_seconds"] = keys_of.pop(name)
    return document


def _dependencies(step: Any) -> list[str]:
    written = step.get("depends_on") if isinstance(step, dict) else None
    names = written if isinstance(written, list) else [written]
    return [name for name in names if isinstance(name, str)]
