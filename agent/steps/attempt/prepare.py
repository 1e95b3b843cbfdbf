"""What happens before a step's kind runs: its condition, its items, its rendered configuration.

Templates are rendered here, at the attempt's start and outside every transaction. A configuration
without templates is checked once per definition and kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from agent.core.ids import request_hash
from agent.core.state_machine import ApprovalStatus
from agent.steps.attempt import approval_gate
from agent.steps.attempt.secrets import Place, references, secret_watcher
from agent.steps.spec.configs import RENDERED
from agent.steps.spec.questions import ApprovalConfig
from agent.steps.spec.registry import KINDS, Kind
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json, Succeeded, Waiting
from agent.steps.types.value_sizes import is_small
from agent.store.db.json_values import NotPlainJsonError
from agent.workflows.diagnostics import write_key
from agent.workflows.graph import MAX_ITEMS, Fanout, Graph, Step
from agent.workflows.templates.templates import (
    TemplateError,
    evaluate,
    has_templates,
    is_template,
    render,
)
from agent.workflows.validation_messages import faults, shown

MAX_KEPT = 50_000


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """What a definition alone says of its attempts."""

    step: Step
    kind: Kind
    config: BaseModel | None
    """None when it has templates, and is known only at the attempt's start."""
    secret_places: frozenset[Place]


_plans: dict[int, PreparedStep] = {}


def plan_of(step: Step) -> PreparedStep:
    """Return what is known of a step before any attempt, computed once per definition."""
    plan = _plans.get(id(step))
    if plan is None:
        plan = _make_plan(step)
        if len(_plans) >= MAX_KEPT:
            _plans.clear()
        # The plan holds its step, so that no other can take the same id while it is kept.
        _plans[id(step)] = plan
    return plan


def _make_plan(step: Step) -> PreparedStep:
    kind = KINDS.get(step.kind)
    if kind is None:
        raise _refused("unknown_kind", f"there is no kind of step called {step.kind!r}")
    is_fixed = not has_templates(_without(step.config, kind.verbatim))
    config = checked(kind, step.config) if is_fixed else None
    places = frozenset(place for place in references(step.config) if place[0] in kind.secret_keys)
    return PreparedStep(step, kind, config, places)


_watched: dict[int, Graph] = {}
_MAX_WATCHED = 1024
"""Each holds its graph, so that no other can take the same id; a graph may be large."""


def watch_secrets(graph: Graph) -> None:
    """Hide what a workflow names by reference, once for each definition."""
    if id(graph) not in _watched:
        if len(_watched) >= _MAX_WATCHED:
            _watched.clear()
        _watched[id(graph)] = graph
        secret_watcher.add(secret_references(graph))


def secret_references(graph: Graph) -> list[Json]:
    """Return the parts of a definition that may hold references: of its steps, and of its webhook.

    No configuration is checked here: the first attempt of a task would block the event loop for a
    second if its workflow has many steps.
    """
    found: list[Json] = [graph.on]
    for step in graph.steps:
        kind = KINDS.get(step.kind)
        # Of a kind that is not known here, what it does with its keys is not known either.
        names = kind.secret_keys if kind is not None else frozenset()
        found += [step.config[name] for name in names if name in step.config]
    return found


def is_heavy(claimed: AttemptInput) -> bool:
    """Whether templates of this attempt see large values: they are then rendered in a thread."""
    step = claimed.step
    if step.condition is None and step.fanout is None and not step.has_templates:
        return False
    return (
        any(not upstream.is_small for upstream in claimed.upstream.values())
        or not is_small(claimed.task.input)
        or not is_small(claimed.item)
    )


def is_wanted(claimed: AttemptInput) -> bool:
    """Whether the step's `if` lets it run; the items of a group were decided by the group."""
    condition = claimed.step.condition
    if condition is None or claimed.parallel_index is not None:
        return True
    try:
        return bool(_value_of(condition, scope_of(claimed)))
    except TemplateError as problem:
        raise _refused("bad_condition", f"in if: {problem}") from None


def config_of(claimed: AttemptInput, plan: PreparedStep) -> BaseModel:
    """Return the step's configuration, rendered and checked."""
    if plan.config is not None:
        return plan.config
    return checked(plan.kind, rendered_config(claimed, plan))


def rendered_config(claimed: AttemptInput, plan: PreparedStep) -> dict[str, Json]:
    """Return the step's configuration as it is written, but for its templates."""
    return _rendered(claimed, claimed.step.config, plan.kind)


def _rendered(claimed: AttemptInput, raw: dict[str, Json], kind: Kind) -> dict[str, Json]:
    verbatim = kind.verbatim
    try:
        rendered = render(_without(raw, verbatim), scope_of(claimed))
    except TemplateError as problem:
        raise _refused("bad_template", str(problem)) from None
    return _with(rendered, raw, verbatim)


def gated(claimed: AttemptInput, plan: PreparedStep) -> BaseModel | Waiting:
    """Return the configuration that somebody approved, or the question to them.

    What was approved is held against what would run now: if that has changed, it is asked again.
    """
    assert claimed.step.approval is not None
    kind = plan.kind
    config = rendered_config(claimed, plan)
    checked(kind, config)
    request = approval_gate.gated_request(kind.name, config)
    try:
        found = approval_gate.find(claimed, request, ApprovalStatus.APPROVED)
        if found is None:
            asking = KINDS["approval"]
            question = checked(asking, _rendered(claimed, claimed.step.approval, asking))
            assert isinstance(question, ApprovalConfig)
            return approval_gate.ask(
                "approval", question, request, approval_gate.own_checkpoint(claimed)
            )
    except NotPlainJsonError as problem:
        raise _refused("not_plain_json", str(problem)) from None
    config = approval_gate.edited(config, found.edits)
    if request_hash(approval_gate.gated_request(kind.name, config)) != found.approved_hash:
        raise _refused("not_as_approved", "what would run is not what was approved")
    return checked(kind, config)


def checked(kind: Kind, config: dict[str, Json]) -> BaseModel:
    """Check a configuration by its kind's model, with all problems in one message."""
    try:
        return kind.model.model_validate(config, context=RENDERED)
    except ValidationError as error:
        texts = [
            f"{write_key((kind.name, *fault.place))}: {fault.message}"
            for fault in faults(kind.model, config, error)
        ]
        raise _refused("bad_config", "; ".join(texts)) from None


def items_of(claimed: AttemptInput, most: int = MAX_ITEMS) -> Succeeded:
    """Decide the items of a group, of which there may be so many."""
    fanout = claimed.step.fanout
    if fanout is None:
        raise _refused("no_items", "the step is no group: it has neither foreach nor parallel")
    try:
        items = _items(fanout, claimed)
    except TemplateError as problem:
        raise _refused("bad_items", f"the items cannot be told: {problem}") from None
    if len(items) > most:
        raise _too_many(fanout, len(items), most)
    return Succeeded(output=[] if not items else None, items=items)


def _items(fanout: Fanout, claimed: AttemptInput) -> list[Json]:
    if fanout.count is not None:
        return list(range(fanout.count))
    if fanout.items is not None:
        items = fanout.items
        if has_templates(items):
            items = render(items, scope_of(claimed))
        return list(items)
    if fanout.count_of is not None:
        count = _value_of(fanout.count_of, scope_of(claimed))
        if isinstance(count, float) and count.is_integer():
            count = int(count)
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            text = f"parallel: {fanout.count_of} gives {shown(count)}, and must give a count"
            raise _refused("bad_items", text)
        if count > MAX_ITEMS:
            raise _too_many(fanout, count, MAX_ITEMS)
        return list(range(count))
    assert fanout.items_of is not None
    items = _value_of(fanout.items_of, scope_of(claimed))
    if not isinstance(items, list):
        text = f"foreach: {fanout.items_of} gives {shown(items)}, and must give a list"
        raise _refused("bad_items", text)
    return items


def _too_many(fanout: Fanout, count: int, most: int) -> Exception:
    key = "parallel" if fanout.count is not None or fanout.count_of is not None else "foreach"
    of = f"{of} gives " if (of := fanout.count_of or fanout.items_of) else ""
    return _refused("too_many_items", f"{key}: {of}{count:,} items, and {most:,} are allowed")


def scope_of(claimed: AttemptInput) -> dict[str, Any]:
    """Return the names that the step's templates and expressions see."""
    task = claimed.task
    scope: dict[str, Any] = {
        "steps": {
            name: {"output": step.output, "status": step.status, "error": step.error}
            for name, step in claimed.upstream.items()
        },
        "inputs": task.input,
        "trigger": task.trigger,
        "task": {
            "id": task.id,
            "workflow": task.workflow,
            "version": task.version,
            "attempt": claimed.attempt,
        },
    }
    if claimed.parallel_index is not None:
        scope["item"] = claimed.item
        scope["parallel_index"] = claimed.parallel_index
        scope["parallel_count"] = claimed.parallel_count
    return scope


def _value_of(text: str, scope: Mapping[str, Any]) -> Json:
    """Compute what is written as an expression or as a template."""
    return render(text, scope) if is_template(text) else evaluate(text, scope)


def _without(config: dict[str, Json], keys: frozenset[tuple[str, ...]]) -> dict[str, Json]:
    """Leave out what is never rendered."""
    for key, *rest in keys:
        if key not in config:
            continue
        config = dict(config)
        if not rest:
            del config[key]
        elif isinstance(config[key], dict):
            config[key] = _without(config[key], frozenset({tuple(rest)}))
    return config


def _with(
    rendered: dict[str, Json], raw: dict[str, Json], keys: frozenset[tuple[str, ...]]
) -> dict[str, Json]:
    """Put back what was not rendered, as it was written."""
    for key, *rest in keys:
        if key not in raw:
            continue
        if not rest:
            rendered = {**rendered, key: raw[key]}
        elif isinstance(raw[key], dict):
            inner = _with(rendered[key], raw[key], frozenset({tuple(rest)}))
            rendered = {**rendered, key: inner}
    return rendered


def _refused(code: str, message: str) -> DefiniteFailure:
    return DefiniteFailure(message, code=code, kind="input", may_retry=False)
