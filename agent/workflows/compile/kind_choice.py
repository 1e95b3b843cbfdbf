"""Finds a step's kind among its keys and checks that kind's own keys."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agent.core.quick_classes.quick_dataclasses import dataclass, field
from agent.workflows.compile.models import STEP_WORDS
from agent.workflows.diagnostics import Problem, did_you_mean
from agent.workflows.kind_registry import PLANNED, KindSpec
from agent.workflows.validation_messages import find_problems, known_keys, shown
from agent.workflows.yaml.source import Path, Source

GATE = "approval"
"""The one kind that may be combined with another: it then asks before the other acts."""

_ONLY_OF_GATES: Final = {
    "editable": ("there is nothing to edit", None),
    "when": ("there is nothing to do without it", "write the condition as the step's `if`"),
}
"""Keys of an approval that need another kind beside it."""

_ELSEWHERE: Final = {
    **dict.fromkeys(("needs", "requires", "dependencies", "after", "upstream"), "depends_on"),
    **dict.fromkeys(("when", "condition", "only_if"), "if"),
    **dict.fromkeys(("for_each", "loop", "with_items", "items", "matrix", "each"), "foreach"),
    **dict.fromkeys(("retries", "max_retries", "max_attempts", "attempts"), "retry"),
    **dict.fromkeys(("timeout_seconds", "deadline"), "timeout"),
    **dict.fromkeys(("run", "command", "cmd", "exec", "bash", "sh", "script", "argv"), "shell"),
    **dict.fromkeys(("call", "function", "py"), "python"),
    **dict.fromkeys(("url", "request", "get", "post", "webhook"), "http"),
    **dict.fromkeys(("prompt", "model", "chat"), "llm"),
    **dict.fromkeys(("email", "e-mail", "smtp", "send_mail", "sendmail"), "mail"),
    **dict.fromkeys(("imap", "move_mail", "label_mail", "flag_mail"), "mailbox"),
    **dict.fromkeys(("sleep", "delay", "signal", "until"), "wait"),
    **dict.fromkeys(("child", "subworkflow", "call_workflow"), "workflow"),
    **dict.fromkeys(("approve", "confirm", "gate"), "approval"),
    **dict.fromkeys(("ask", "question"), "input"),
}
"""The names of other systems for the keys of a step."""


_MOST_UNKNOWN: Final = 100
"""Unknown keys of one step that are reported one by one: finding similar words takes time."""


@dataclass(slots=True)
class ChosenKind:
    """What a step does: its kind, that kind's configuration, and an approval before it."""

    kind: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    gate: dict[str, Any] | None = None
    problems: list[Problem] = field(default_factory=list)


def choose_kind(
    step: Mapping[str, Any], path: Path, source: Source, kinds: Mapping[str, KindSpec]
) -> ChosenKind:
    """Find the one kind of a step among its keys; every other key must be a common one."""
    choice = ChosenKind()
    named = [key for key in step if key in kinds or key in PLANNED]
    unknown = [key for key in step if key not in named and key not in STEP_WORDS]
    choice.problems += [
        source.problem((*path, key), *_unknown_key(key, step, named, kinds))
        for key in unknown[:_MOST_UNKNOWN]
    ]
    if len(unknown) > _MOST_UNKNOWN:
        message = f"there are {len(unknown) - _MOST_UNKNOWN:,} more keys that a step does not have"
        choice.problems.append(source.problem((*path, unknown[_MOST_UNKNOWN]), message))
    for key in named:
        if key not in kinds:
            message = f"steps of the kind {key!r} are not available yet"
            choice.problems.append(source.problem((*path, key), message, _available(kinds)))
    acting = [key for key in named if key != GATE] or named
    if len(acting) > 1:
        message = f"a step does one thing, and this one has {' and '.join(map(repr, acting))}"
        choice.problems.append(source.problem((*path, acting[1]), message, "make it two steps"))
    elif not acting:
        if not unknown:
            message = "the step has no kind"
            choice.problems.append(source.problem(path, message, _available(kinds)))
    elif acting[0] in kinds:
        choice.kind = acting[0]
        choice.config = _config(step[acting[0]], (*path, acting[0]), source, kinds, choice)
        if GATE in named and acting[0] != GATE and GATE in kinds:
            choice.gate = _config(step[GATE], (*path, GATE), source, kinds, choice)
            _check_editable(choice.gate, kinds[choice.kind], (*path, GATE), source, choice)
        elif acting[0] == GATE:
            for key, (what, hint) in _ONLY_OF_GATES.items():
                if choice.config.get(key):
                    message = f"{what}: the approval has no other kind beside it"
                    choice.problems.append(source.problem((*path, GATE, key), message, hint))
    return choice


def _config(
    value: Any, path: Path, source: Source, kinds: Mapping[str, KindSpec], choice: ChosenKind
) -> dict[str, Any]:
    spec = kinds[str(path[-1])]
    config: dict[str, Any] = value if isinstance(value, dict) else {}
    if value is not None and not isinstance(value, dict):
        if spec.short_key is None:
            message = f"{spec.name} takes a mapping of keys, and not {shown(value)}"
            hint = f"as in {spec.name}: {spec.example}" if spec.example else None
            choice.problems.append(source.problem(path, message, hint, at_value=True))
            return {}
        config = {spec.short_key: value}
    _, problems = find_problems(spec.model, config, source, path, may_have_templates=True)
    choice.problems += problems
    return config


def _check_editable(
    gate: Mapping[str, Any], spec: KindSpec, path: Path, source: Source, choice: ChosenKind
) -> None:
    """Refuse an editable key that the gated kind does not have."""
    editable = gate.get("editable")
    known = known_keys(spec.model, ())
    for key in editable if isinstance(editable, list) else [editable]:
        if isinstance(key, str) and key.split(".")[0] not in known:
            message = f"{spec.name} has no key {key!r} to edit"
            hint = did_you_mean(key, known)
            choice.problems.append(source.problem((*path, "editable"), message, hint))


def _unknown_key(
    key: str, step: Mapping[str, Any], named: Sequence[str], kinds: Mapping[str, KindSpec]
) -> tuple[str, str | None]:
    for kind in named:
        if kind in kinds and key in known_keys(kinds[kind].model, ()):
            indent = f"indent it: it belongs to {kind}"
            within = f"write it within {kind}: it is a key of that"
            return f"a step has no key {key!r}", indent if step[kind] is None else within
    elsewhere = _ELSEWHERE.get(key)
    hint = f"did you mean {elsewhere!r}?" if elsewhere in (*STEP_WORDS, *kinds) else None
    if named:
        words: list[str] = [*STEP_WORDS, *kinds]
        return f"a step has no key {key!r}", hint or did_you_mean(key, words)
    hint = hint or did_you_mean(key, [*kinds, *STEP_WORDS]) or _available(kinds)
    if isinstance(step[key], dict):
        return f"there is no kind of step {key!r}", hint
    return f"a step has no key {key!r}, and this one has no kind", hint


def _available(kinds: Mapping[str, KindSpec]) -> str:
    return f"there are {', '.join(kinds)}" if kinds else "no kinds are known here"


def rendered_parts(
    config: Mapping[str, Any], verbatim: frozenset[tuple[str, ...]], path: Path
) -> Iterator[tuple[Path, Any]]:
    """Yield the rendered values of a configuration, with their paths."""
    for key, value in config.items():
        if (key,) in verbatim:
            continue
        inner = frozenset(
            rest for first, *rest_ in verbatim if first == key and (rest := tuple(rest_))
        )
        if inner and isinstance(value, dict):
            yield from rendered_parts(value, inner, (*path, key))
        else:
            yield (*path, key), value
