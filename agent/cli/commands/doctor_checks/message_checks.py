"""The checks of `agent doctor` on messages: would the recipients that workflows name be reached."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from agent.core.scopes import implied
from agent.steps.spec.message_config import OPERATOR, ORIGIN
from agent.store.channels import pairings
from agent.workflows.templates.templates import has_templates

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.store.db.database import Connection
    from agent.workflows.graph import Graph


def message_checks(
    settings: "Settings", connection: "Connection", graphs: "Iterable[Graph]"
) -> Iterator[tuple[str, str, str]]:
    """Return (what, state, message) for each recipient that would not be reached."""
    used = settings.channels.turned_on
    has_operator = bool(settings.notify.operator) or any(
        account.channel in used and "operate" in implied(account.scopes)
        for account in pairings.listed(connection)
    )
    for address in settings.notify.operator:
        if (problem := _problem(address, used)) is not None:
            yield "messages", "warning", f"operator in [notify]: {problem}"
    graphs = list(graphs)
    hook = settings.notify.failure_workflow
    if hook is not None and hook not in {graph.name for graph in graphs}:
        yield "messages", "warning", f"on_failure in [notify]: there is no workflow {hook!r}"
    for graph in graphs:
        for step, name in _recipients(graph):
            where = f"step {step} of {graph.name}"
            if name == OPERATOR and not has_operator:
                yield (
                    "messages",
                    "warning",
                    f"{where} sends to operator, and no one is paired with the scope operate: write"
                    " to the bot, then `agent pair CODE`; or set operator in [notify]",
                )
            elif (problem := _problem(name, used)) is not None:
                yield "messages", "warning", f"{where}: {problem}"


def _recipients(graph: "Graph") -> Iterator[tuple[str, str]]:
    """Yield each step with each recipient that its definition names."""
    for step in graph.steps:
        if step.kind != "message":
            continue
        to = step.config.get("to")
        # Without `to` a task that a chat did not start sends to the operator.
        default = [] if graph.on.get("chat") else [OPERATOR]
        for name in default if to is None else to if isinstance(to, list) else [to]:
            if isinstance(name, str) and not has_templates(name):
                yield step.name, name


def _problem(address: str, used: list[str]) -> str | None:
    channel = address.partition(":")[0]
    if address in (OPERATOR, ORIGIN) or channel in ("terminal", *used):
        return None
    if channel == "apprise":
        import importlib.util

        if importlib.util.find_spec("apprise") is None:
            return f"{address} needs a library: python -m pip install apprise"
        return None
    return f"{address} needs the channel {channel}, which [channels.{channel}] does not configure"
