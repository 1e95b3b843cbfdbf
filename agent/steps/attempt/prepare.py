"""Prepares an attempt before its kind runs: condition, items, rendered configuration, approval.

Templates are rendered here, at the attempt's start and outside every transaction. A configuration
without templates is checked once per definition and cached.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from agent.core.clock import to_iso
from agent.core.ids import request_hash
from agent.core.local_zone import local_date
from agent.core.state_machine import ApprovalStatus
from agent.steps.attempt import approval_gate
from agent.steps.attempt.secrets import ValuePath, references, secret_watcher
from agent.steps.spec.configs import RENDERED
from agent.steps.spec.questions import ApprovalConfig
from agent.steps.spec.registry import KINDS, Kind
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json, Succeeded, Waiting
from agent.steps.types.state_values import StateValue
from agent.steps.types.value_sizes import SMALL_BYTES, is_small
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

_MAX_PREPARED = 50_000


@dataclass(frozen=True, slots=True)
class PreparedStep:
    """Facts about a step from its definition alone, before any attempt."""

    step: Step
    kind: Kind
    config: BaseModel | None
    """None when it has templates: it is then rendered for each attempt."""
    secret_paths: frozenset[ValuePath]


_prepared: dict[int, PreparedStep] = {}


def prepare_step(step: Step) -> PreparedStep:
    """Return the facts about a step before any attempt; computed once per definition."""
    prepared = _prepared.get(id(step))
    if prepared is None:
        prepared = _prepare(step)
        if len(_prepared) >= _MAX_PREPARED:
            _prepared.clear()
        # The entry holds its step, so that no other step can get the same id meanwhile.
        _prepared[id(step)] = prepared
    return prepared


def _prepare(step: Step) -> PreparedStep:
    kind = KINDS.get(step.kind)
    if kind is None:
        raise _refused("unknown_kind", f"there is no kind of step called {step.kind!r}")
    config = None if is_rendered(step, kind) else check_config(kind, step.config)
    paths = frozenset(path for path in references(step.config) if path[0] in kind.secret_keys)
    return PreparedStep(step, kind, config, paths)


def is_rendered(step: Step, kind: Kind | None) -> bool:
    """Whether each attempt renders the step's configuration: it has templates that kinds do not keep."""
    verbatim = frozenset[tuple[str, ...]]() if kind is None else kind.verbatim
    return has_templates(_without(step.config, verbatim))


_watched: dict[int, Graph] = {}
_MAX_WATCHED = 1024
"""Each entry holds its graph, so that no other graph can get the same id; a graph may be large."""


def watch_secrets(graph: Graph) -> None:
    """Redact the secrets that a workflow names, from now on; done once per definition."""
    if id(graph) not in _watched:
        if len(_watched) >= _MAX_WATCHED:
            _watched.clear()
        _watched[id(graph)] = graph
        secret_watcher.add(secret_references(graph))


def secret_references(graph: Graph) -> list[Json]:
    """Return the parts of a definition that may hold references: of its steps, and of its webhook.

    This checks no configuration: for a workflow with many steps that would block the event loop for
    a second.
    """
    return [graph.on, *(part for step in graph.steps for part in secret_parts(step).values())]


def secret_parts(step: Step) -> dict[str, Json]:
    """Return the keys of a step that may hold references, with their values."""
    kind = KINDS.get(step.kind)
    # An unknown kind has no known secret keys.
    names = kind.secret_keys if kind is not None else frozenset()
    return {name: step.config[name] for name in names if name in step.config}


def needs_thread(attempt_input: AttemptInput) -> bool:
    """Whether the templates of this attempt see large values: a thread then renders them."""
    step = attempt_input.step
    if step.condition is None and step.fanout is None and not step.has_templates:
        return False
    return (
        any(not upstream.is_small for upstream in attempt_input.upstream.values())
        or not is_small(attempt_input.task.input)
        or not is_small(attempt_input.item)
        or any(len(read.text or "") > SMALL_BYTES for read in attempt_input.state.values())
    )


def condition_holds(attempt_input: AttemptInput) -> bool:
    """Whether the step's `if` lets it run; for the items of a group the group has decided."""
    condition = attempt_input.step.condition
    if condition is None or attempt_input.parallel_index is not None:
        return True
    try:
        return bool(_value_of(condition, scope_of(attempt_input)))
    except TemplateError as error:
        raise _refused("bad_condition", f"in if: {error}") from None


Record = Callable[[dict[str, Json]], None]
"""Takes a rendered configuration, before it is checked."""


def config_of(attempt_input: AttemptInput, prepared: PreparedStep, record: Record) -> BaseModel:
    """Return the step's configuration, rendered and check_config."""
    if prepared.config is not None:
        return prepared.config
    config = rendered_config(attempt_input, prepared)
    record(config)
    return check_config(prepared.kind, config)


def rendered_config(attempt_input: AttemptInput, prepared: PreparedStep) -> dict[str, Json]:
    """Return the step's configuration with its templates rendered, not yet checked."""
    kind = prepared.kind
    config = _rendered(attempt_input, attempt_input.step.config, kind)
    return config if kind.complete is None else kind.complete(config)


def _rendered(attempt_input: AttemptInput, raw: dict[str, Json], kind: Kind) -> dict[str, Json]:
    verbatim = kind.verbatim
    try:
        rendered = render(_without(raw, verbatim), scope_of(attempt_input))
    except TemplateError as error:
        raise _refused("bad_template", str(error)) from None
    return _with(rendered, raw, verbatim)


def approved_config(
    attempt_input: AttemptInput,
    prepared: PreparedStep,
    record: Record,
    record_open_gate: Callable[[], None],
) -> BaseModel | Waiting:
    """Return the configuration that a person approved or that needs no approval, or the question to ask.

    The approval counts only for exactly what would run now. If that has changed, the step asks again.
    """
    gate = attempt_input.step.approval
    assert gate is not None
    kind = prepared.kind
    config = rendered_config(attempt_input, prepared)
    if prepared.config is None:
        record(config)
    check_config(kind, config)
    request = approval_gate.gated_request(kind.name, config)
    try:
        approval = approval_gate.find_approval(attempt_input, request, ApprovalStatus.APPROVED)
        # What was approved runs, with its edits, also where nothing would be asked any more.
        if approval is None and _is_open(gate, attempt_input, request):
            record_open_gate()
            return check_config(kind, config)
        if approval is None:
            asking = KINDS["approval"]
            question: Any = check_config(asking, _rendered(attempt_input, gate, asking))
            assert isinstance(question, ApprovalConfig)
            return approval_gate.ask(
                "approval",
                _with_background(question, attempt_input, kind),
                request,
                approval_gate.own_checkpoint(attempt_input),
            )
    except NotPlainJsonError as error:
        raise _refused("not_plain_json", str(error)) from None
    config = approval_gate.apply_edits(config, approval.edits)
    if request_hash(approval_gate.gated_request(kind.name, config)) != approval.approved_hash:
        raise _refused("not_as_approved", "what would run is not what was approved")
    if approval.edits:
        record(config)
    return check_config(kind, config)


def _is_open(gate: dict[str, Json], attempt_input: AttemptInput, request: Json) -> bool:
    """Whether a gate has a condition that is false for exactly what would run now."""
    if gate.get("when") is None:
        return False
    scope = {**scope_of(attempt_input), "request": request}
    try:
        # An amount that is no number must not count as 0, below every limit.
        return not _value_of(gate["when"], scope, is_strict=True)
    except TemplateError as error:
        raise _refused("bad_condition", f"in approval.when: {error}") from None


def _with_background(
    question: ApprovalConfig, attempt_input: AttemptInput, kind: Kind
) -> ApprovalConfig:
    """Return a question with what its kind shows besides the request."""
    if kind.background is None:
        return question
    background = kind.background(_rendered(attempt_input, attempt_input.step.config, kind))
    if background is None:
        return question
    return question.model_copy(update={"message": f"{question.message}\n\n{background}"})


def check_config(kind: Kind, config: dict[str, Json]) -> BaseModel:
    """Check a configuration against its kind's model; all problems are in one message."""
    try:
        return kind.model.model_validate(config, context=RENDERED)
    except ValidationError as error:
        texts = [
            f"{write_key((kind.name, *fault.path))}: {fault.message}"
            for fault in faults(kind.model, config, error)
        ]
        raise _refused("bad_config", "; ".join(texts)) from None


def items_of(attempt_input: AttemptInput, max_items: int = MAX_ITEMS) -> Succeeded:
    """Decide the items of a group."""
    fanout = attempt_input.step.fanout
    if fanout is None:
        raise _refused("no_items", "the step is not a group: it has neither foreach nor parallel")
    try:
        items = _items(fanout, attempt_input)
    except TemplateError as error:
        raise _refused("bad_items", f"the items cannot be computed: {error}") from None
    if len(items) > max_items:
        raise _too_many(fanout, len(items), max_items)
    return Succeeded(output=[] if not items else None, items=items)


def _items(fanout: Fanout, attempt_input: AttemptInput) -> list[Json]:
    if fanout.count is not None:
        return list(range(fanout.count))
    if fanout.items is not None:
        items = fanout.items
        if has_templates(items):
            items = render(items, scope_of(attempt_input))
        return list(items)
    if fanout.count_of is not None:
        count = _value_of(fanout.count_of, scope_of(attempt_input))
        if isinstance(count, float) and count.is_integer():
            count = int(count)
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            text = f"parallel: {fanout.count_of} gives {shown(count)}, and must give a count"
            raise _refused("bad_items", text)
        if count > MAX_ITEMS:
            raise _too_many(fanout, count, MAX_ITEMS)
        return list(range(count))
    assert fanout.items_of is not None
    items = _value_of(fanout.items_of, scope_of(attempt_input))
    if not isinstance(items, list):
        text = f"foreach: {fanout.items_of} gives {shown(items)}, and must give a list"
        raise _refused("bad_items", text)
    return items


def _too_many(fanout: Fanout, count: int, max_items: int) -> Exception:
    key = "parallel" if fanout.count is not None or fanout.count_of is not None else "foreach"
    of = f"{of} gives " if (of := fanout.count_of or fanout.items_of) else ""
    return _refused("too_many_items", f"{key}: {of}{count:,} items, and {max_items:,} are allowed")


def scope_of(attempt_input: AttemptInput) -> dict[str, Any]:
    """Return the names that the step's templates and expressions see."""
    task = attempt_input.task
    scope: dict[str, Any] = {
        "steps": {
            name: {"output": step.output, "status": step.status, "error": step.error}
            for name, step in attempt_input.upstream.items()
        },
        "inputs": task.input,
        "trigger": task.trigger,
        "task": {
            "id": task.id,
            "workflow": task.workflow,
            "version": task.version,
            "attempt": attempt_input.attempt,
        },
    }
    if attempt_input.now is not None:
        scope["now"] = to_iso(attempt_input.now)
        scope["today"] = local_date(attempt_input.now)
    if attempt_input.step.reads_state:
        scope["state"] = visible(attempt_input.state)
    if attempt_input.parallel_index is not None:
        scope["item"] = attempt_input.item
        scope["parallel_index"] = attempt_input.parallel_index
        scope["parallel_count"] = attempt_input.parallel_count
    return scope


def visible(state: Mapping[str, StateValue]) -> dict[str, Json]:
    """Return `state` as templates see it: names without a value are missing."""
    return {name: read.value for name, read in state.items() if read.exists}


def _value_of(text: str, scope: Mapping[str, Any], *, is_strict: bool = False) -> Json:
    """Compute the value of an expression or a template."""
    return (render if is_template(text) else evaluate)(text, scope, is_strict=is_strict)


def _without(config: dict[str, Json], keys: frozenset[tuple[str, ...]]) -> dict[str, Json]:
    """Return a configuration without the keys that are never rendered."""
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
    """Return a rendered configuration with the keys that are never rendered."""
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
