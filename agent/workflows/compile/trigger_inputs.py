"""Checks the inputs that a trigger gives to its tasks, as far as that is possible before it fires."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from agent.workflows.compile.inputs import InputError, check_inputs
from agent.workflows.compile.references import templates_in
from agent.workflows.diagnostics import Problem, did_you_mean
from agent.workflows.graph import Graph
from agent.workflows.templates.expressions import parse_template
from agent.workflows.templates.limits import TemplateError
from agent.workflows.templates.templates import has_templates
from agent.workflows.yaml.source import Path, Source

_SCHEDULE: Final = ("kind", "trigger", "scheduled_for", "late_by", "fate")
_WATCH: Final = ("kind", "trigger", "source")


def names_of(kind: str, trigger: dict[str, Any]) -> tuple[str, ...]:
    """Return the names that the templates of a trigger can read as `trigger.NAME`."""
    if kind == "schedule":
        return _SCHEDULE
    return (*_WATCH, "items" if trigger.get("per") == "batch" else "item")


def find_problems(source: Source, graph: Graph) -> Iterator[Problem]:
    """Yield the problems of the inputs of schedules and watchers."""
    for kind in ("schedule", "watch"):
        for number, trigger in enumerate(graph.on.get(kind, [])):
            inputs = trigger.get("inputs", {})
            path: Path = ("on", kind, number, "inputs")
            templates = [name for name, value in inputs.items() if has_templates(value)]
            try:
                check_inputs(graph, inputs, templates)
            except InputError as error:
                yield from (source.problem(path, text) for text in error.problems)
            known = names_of(kind, trigger)
            for place, text in templates_in(inputs, path):
                for message, hint in _template_problems(text, known):
                    yield source.problem(place, message, hint, at_value=True)


def _template_problems(text: str, known: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    try:
        lookups = parse_template(text).lookups
    except TemplateError as error:
        yield str(error), None
        return
    for lookup in lookups:
        if lookup[0] != "trigger":
            message = f"there is no {lookup[0]!r} in the inputs of a trigger"
            yield message, f"they read trigger alone, which has {', '.join(known)}"
        elif len(lookup) > 1 and lookup[1] not in known:
            near = did_you_mean(lookup[1], known)
            yield f"trigger has no {str(lookup[1])!r}", near or f"it has {', '.join(known)}"
