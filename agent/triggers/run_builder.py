"""Builds the runs of triggers: the inputs of a task, rendered from the trigger's values."""

from typing import Any

from agent.core.clock import SECOND, to_iso
from agent.store.db.database import Connection
from agent.store.db.json_values import NotPlainJsonError, encode
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.state.graph_cache import GraphCache, UnreadableError
from agent.triggers.watchers.source import Item
from agent.workflows.compile.inputs import InputError, check_inputs
from agent.workflows.templates.templates import TemplateError, render

Json = Any


class InputsRefusedError(ValueError):
    """The inputs of a trigger cannot be rendered, or its workflow refuses them."""


class RunBuilder:
    """Renders and checks inputs outside of any transaction, against the workflow as it is recorded."""

    def __init__(self, graphs: GraphCache) -> None:
        self._graphs = graphs

    def input_of(
        self,
        connection: Connection,
        row: TriggerRow,
        spec: dict[str, Json],
        context: dict[str, Json],
    ) -> dict[str, Json]:
        """Return the checked input of a task."""
        try:
            graph = self._graphs.get(connection, row.workflow, row.workflow_version)
            values = render(spec.get("inputs", {}), {"trigger": context})
            checked = check_inputs(graph, values)
            encode(checked, "input")
            encode(context, "trigger")
        except (TemplateError, NotPlainJsonError, UnreadableError) as error:
            raise InputsRefusedError(str(error)) from None
        except InputError as error:
            raise InputsRefusedError("; ".join(map(str, error.problems))) from None
        return checked


def schedule_context(row: TriggerRow, nominal_us: int, now: int, fate: str) -> dict[str, Json]:
    """Return the `trigger` of a task of a schedule."""
    return {
        "kind": "schedule",
        "trigger": row.id,
        "scheduled_for": to_iso(nominal_us),
        "late_by": max(0.0, (now - nominal_us) / SECOND),
        "fate": fate,
    }


def watch_context(row: TriggerRow, source: str, items: list[Item], per: str) -> dict[str, Json]:
    """Return the `trigger` of a task of a watcher."""
    context: dict[str, Json] = {"kind": "watch", "trigger": row.id, "source": source}
    if per == "batch":
        context["items"] = [item.data for item in items]
    else:
        context["item"] = items[0].data
    return context


def instant_key(nominal_us: int) -> str:
    """Return the key of a schedule's firing: its nominal instant in UTC."""
    text = to_iso(nominal_us - nominal_us % 1000) or ""
    rest = nominal_us % 1000
    return text if rest == 0 else f"{text[:-1]}{rest:03d}Z"


def range_key(first_us: int, last_us: int) -> str:
    """Return the key of a range of instants, which is no instant's key."""
    return f"{instant_key(first_us)}/{instant_key(last_us)}"
