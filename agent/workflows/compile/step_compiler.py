"""Compiles one step of a workflow file to one step of a graph."""

import math
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from agent.workflows.compile.executor_keys import KINDS as EXECUTED_KINDS
from agent.workflows.compile.fanout import read_fanout, without_braces
from agent.workflows.compile.kind_choice import choose_kind, rendered_parts
from agent.workflows.compile.models import STEP_WORDS, BudgetKeys, DefaultsKeys, RetryKeys, StepKeys
from agent.workflows.compile.output_schema import find_schema_problem
from agent.workflows.compile.references import Reads, References
from agent.workflows.diagnostics import Problem
from agent.workflows.graph import MAX_NAME_CHARS, NAME_PATTERN, Fanout, RetryPolicy, Step
from agent.workflows.kind_registry import KindSpec
from agent.workflows.validation_messages import find_problems, shown
from agent.workflows.yaml.source import Path, Source

_NAME = re.compile(NAME_PATTERN.rstrip("$"))
_SCRIPT = ("script",)
OWN_OUTPUT = ("output",)
"""Names that `set_state` may read besides those of every template of its step."""
_MEANT_AS_TEMPLATE = re.compile(
    r"\{\{-?\s*(?:(?:steps|inputs|trigger|task|state)\.[^{}]*|(?:item|parallel_index|parallel_count)\b[^{}]*)\}\}"
)


def _misplaced_keys(steps: Mapping[str, Any], kinds: Mapping[str, KindSpec]) -> dict[str, str]:
    """Return, for steps without content, the key behind them that was meant to be theirs.

    Without its indentation a key of a step is the next step.
    """
    names = list(steps)
    return {
        name: following
        for name, following in pairwise(names)
        if steps[name] is None and (following in kinds or following in STEP_WORDS)
    }


class StepCompiler:
    """Compiles the steps of one file, collecting their problems."""

    def __init__(
        self,
        source: Source,
        kinds: Mapping[str, KindSpec],
        steps: Mapping[str, Any],
        inputs: Mapping[str, Any],
        defaults: DefaultsKeys | None,
        references: References,
    ) -> None:
        self._source = source
        self._kinds = kinds
        self._steps = steps
        self._inputs = inputs
        self._defaults = defaults or DefaultsKeys()
        self._references = references
        self._misplaced_keys = _misplaced_keys(steps, kinds)
        self._misplaced = frozenset(self._misplaced_keys.values())
        self.problems: list[Problem] = []

    def compile(self, name: str, written: Any) -> Step | None:
        """Return the compiled step, or None if it has problems."""
        path: Path = ("steps", name)
        if name in self._misplaced:
            return None
        if not isinstance(written, dict):
            message = f"a step is a mapping of keys, and this is {shown(written)}"
            key = self._misplaced_keys.get(name)
            hint = None if key is None else f"indent {key!r} and what follows: it belongs to {name}"
            self.problems.append(self._source.problem(path, message, hint))
            return None
        common = {key: value for key, value in written.items() if key in STEP_WORDS}
        before = len(self.problems)
        model, problems = find_problems(StepKeys, common, self._source, path)
        choice = choose_kind(written, path, self._source, self._kinds)
        self.problems += problems + choice.problems
        keys = model if model is not None else _valid_keys(common)
        self._check_dependencies(name, keys)
        near, refuse = self._references.near_step, self._refuser(path)
        fanout = read_fanout(written, keys, self._steps, self._inputs, near, refuse)
        condition = self._condition(written, keys, path)
        run_on = self._run_on(keys, path)
        self._check_schema(keys, path)
        self._check_executor(keys, path, choice.kind)
        retry = self._retry(keys, path, choice.kind)
        has_items = "foreach" in written or "parallel" in written
        reads = self._check_templates(name, choice.kind, choice.config, has_items)
        reads = reads.joined(self._check_templates(name, "approval", choice.gate or {}, has_items))
        reads = reads.joined(self._check_expressions(name, condition, fanout))
        writes = self._check_set_state(name, keys, is_group=has_items)
        reads = reads.joined(writes)
        if choice.kind is None or len(self.problems) > before or not _is_name(name):
            return None
        timeout = keys.timeout if "timeout" in written else self._defaults.timeout
        return Step(
            name=name,
            kind=choice.kind,
            config=choice.config,
            depends_on=keys.depends_on,
            condition=condition,
            run_on=run_on,
            fanout=fanout,
            retry=retry,
            timeout_seconds=None if timeout == math.inf else timeout,
            has_no_timeout=timeout == math.inf,
            on_unknown=keys.on_unknown,
            output_schema=keys.output,
            refers_to=[n for n in reads.steps if n not in keys.depends_on],
            budget=budget_document(keys.budget),
            approval=choice.gate,
            set_state=keys.set_state,
            reads_state=sorted(reads.state),
            sets_from=sorted(writes.state),
            reads_now=reads.now,
            executor=None if keys.executor is None else keys.executor.document(),
        )

    def _refuser(self, path: Path) -> Any:
        def refuse(key: str, message: str, hint: str | None = None) -> None:
            problem = self._source.problem((*path, key), message, hint, at_value=True)
            self.problems.append(problem)

        return refuse

    def _check_dependencies(self, name: str, keys: StepKeys) -> None:
        seen: set[str] = set()
        for number, parent in enumerate(keys.depends_on):
            path = ("steps", name, "depends_on", number)
            hint = None
            if parent not in self._steps:
                message = f"there is no step {parent!r}"
                hint = self._references.near_step(parent, but=name)
            elif parent in seen:
                message = f"{parent!r} is named twice"
            else:
                seen.add(parent)
                continue
            self.problems.append(self._source.problem(path, message, hint, at_value=True))

    def _condition(self, written: Mapping[str, Any], keys: StepKeys, path: Path) -> str | None:
        if "if" not in written:
            return None
        refuse = self._refuser(path)
        if isinstance(keys.if_, bool):
            return "true" if keys.if_ else "false"
        if not isinstance(keys.if_, str) or not keys.if_.strip():
            refuse("if", f"if takes an expression, and not {shown(keys.if_)}")
            return None
        condition = without_braces(keys.if_)
        if condition is None:
            refuse("if", "must be one expression, not text with templates in it")
        return condition

    def _run_on(self, keys: StepKeys, path: Path) -> Any:
        if keys.on_failure is None:
            return keys.run_on or "success"
        if keys.run_on not in (None, "always"):
            self._refuser(path)("on_failure", "on_failure: run is run_on: always; give one of them")
        return "always"

    def _check_schema(self, keys: StepKeys, path: Path) -> None:
        if keys.output is None:
            return
        problem = find_schema_problem(keys.output)
        if problem is not None:
            schema_path, message = problem
            self.problems.append(
                self._source.problem((*path, "output", *schema_path), message, at_value=True)
            )

    def _check_executor(self, keys: StepKeys, path: Path, kind: str | None) -> None:
        if keys.executor is not None and kind is not None and kind not in EXECUTED_KINDS:
            message = (
                f"an executor runs the code of {' and '.join(EXECUTED_KINDS)} steps, not {kind}"
            )
            self._refuser(path)("executor", message)

    def _retry(self, keys: StepKeys, path: Path, kind: str | None) -> RetryPolicy:
        """Merge the step's `retry` over that of the workflow's defaults, and both over its kind's."""
        spec = self._kinds.get(kind or "")
        written: dict[str, Any] = {} if spec is None else dict(spec.retry)
        for retry in (self._defaults.retry, keys.retry):
            if retry is not None:
                written |= retry.model_dump(include=retry.model_fields_set)
        merged = RetryKeys.model_construct(**written)
        max_delay = merged.max_delay
        if merged.delay > max_delay:
            if keys.retry is not None and "max_delay" in written:
                self._refuser(path)("retry", "max_delay is shorter than delay")
            max_delay = merged.delay
        return RetryPolicy(
            max_attempts=merged.max_attempts,
            delay_seconds=merged.delay,
            factor=float(merged.factor),
            max_delay_seconds=max_delay,
            jitter=merged.jitter,
        )

    def _check_templates(
        self, name: str, kind: str | None, config: Mapping[str, Any], has_items: bool
    ) -> Reads:
        reads = Reads()
        spec = self._kinds.get(kind or "")
        if spec is None:
            return reads
        place = ("steps", name, spec.name)
        for path, value in rendered_parts(config, spec.verbatim, place):
            reads = reads.joined(
                self._references.check_value(value, path, name, has_items=has_items)
            )
        for keys in spec.verbatim:
            text = _value_at(config, keys)
            if not isinstance(text, str):
                continue
            if keys in spec.expressions:
                also = spec.expressions[keys]
                reads = reads.joined(
                    self._references.check_expression(
                        text, (*place, *keys), name, has_items=has_items, also=also
                    )
                )
            elif (match := _MEANT_AS_TEMPLATE.search(text)) is not None:
                message = f"nothing is rendered inside {'.'.join(keys)}, not even {match[0]}"
                hint = "give the value by env, and use the variable" if keys == _SCRIPT else None
                problem = self._source.problem((*place, *keys), message, hint, at_value=True)
                self.problems.append(problem)
        return reads

    def _check_expressions(self, name: str, condition: str | None, fanout: Fanout | None) -> Reads:
        check = self._references.check_expression
        reads = Reads()
        if condition is not None:
            reads = check(condition, ("steps", name, "if"), name)
        if fanout is None:
            return reads
        if fanout.items_of is not None:
            reads = reads.joined(check(fanout.items_of, ("steps", name, "foreach"), name))
        if fanout.count_of is not None:
            reads = reads.joined(check(fanout.count_of, ("steps", name, "parallel"), name))
        if fanout.items is not None:
            path = ("steps", name, "foreach")
            reads = reads.joined(self._references.check_value(fanout.items, path, name))
        return reads

    def _check_set_state(self, name: str, keys: StepKeys, *, is_group: bool) -> Reads:
        """Check the templates of the values that a step writes; they know the step's `output`."""
        if keys.set_state and is_group:
            message = "a step with foreach or parallel writes no state"
            hint = "write it in a step that depends on this one"
            self._refuser(("steps", name))("set_state", message, hint)
        path = ("steps", name, "set_state")
        return self._references.check_value(keys.set_state, path, name, also=OWN_OUTPUT)


def _is_name(name: str) -> bool:
    """Whether a graph accepts a step's name; `WorkflowKeys` reports one that it does not."""
    return len(name) <= MAX_NAME_CHARS and _NAME.fullmatch(name) is not None


def _value_at(config: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    value: Any = config
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _valid_keys(common: dict[str, Any]) -> StepKeys:
    """Return the keys of a step that are valid by themselves, to find further problems."""
    keys = StepKeys()
    for key, value in common.items():
        try:
            single = StepKeys.model_validate({key: value})
        except ValueError:
            continue
        names = single.model_fields_set
        keys = keys.model_copy(update={name: getattr(single, name) for name in names})
    return keys


def budget_document(budget: BudgetKeys | None) -> dict[str, Any] | None:
    """Return a budget as a graph contains it."""
    if budget is None:
        return None
    document = budget.model_dump(exclude_none=True)
    if "time" in document:
        document["time_seconds"] = document.pop("time")
    return document
