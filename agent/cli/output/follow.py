"""Following a task until it ends or waits on a person, with a live view for whoever looks on."""

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from agent.cli.errors import Exit
from agent.cli.output import task_view, terminal

if TYPE_CHECKING:
    from agent.cli.client.base import AgentClient

ENDED = frozenset({"succeeded", "failed", "canceled"})
_SHORTEST_SECONDS = 0.05
_MOST_CALLS = 12
"""Of a live view."""
_SHARE = 10
"""Looking costs at most one part in so many of a core, however large the task is."""

Look = Callable[[dict[str, Any]], None]


def follow(
    client: "AgentClient", task_id: str, *, is_quiet: bool, check: Callable[[], None] | None = None
) -> dict[str, Any]:
    """Return the task's document once it has ended or waits on a person.

    `check` is called between two looks: it may raise to give the waiting up.
    """
    if is_quiet:
        return _wait(client, task_id, lambda _: None, check)
    if terminal.console().is_terminal:
        return _watch_live(client, task_id, check)
    return _wait(client, task_id, _Lines(client), check)


def exit_code(document: dict[str, Any]) -> Exit:
    """Return how a command that waited for this task ends."""
    if document["status"] == "succeeded":
        return Exit.DONE
    if document["status"] in ENDED:
        return Exit.TASK_FAILED
    return Exit.WAITING


def waits_on_person(document: dict[str, Any]) -> bool:
    """Whether nothing will happen to this task until somebody does something."""
    from agent.tasks.read_models import person_waits

    if document["status"] == "paused":
        return not any(
            step["status"] == "running" and not step["delay"] for step in document["steps"]
        )
    return bool(person_waits.waits_on_person(document))


def _wait(
    client: "AgentClient", task_id: str, look: Look, check: Callable[[], None] | None
) -> dict[str, Any]:
    while True:
        started = time.monotonic()
        document = client.task(task_id)
        look(document)
        if document["status"] in ENDED or waits_on_person(document):
            return document
        if check is not None:
            check()
        time.sleep(max(_SHORTEST_SECONDS, (time.monotonic() - started) * _SHARE))


def _watch_live(
    client: "AgentClient", task_id: str, check: Callable[[], None] | None
) -> dict[str, Any]:
    from rich.live import Live

    from agent.cli.output import live_view

    document = client.task(task_id)
    graph = client.graph(document["workflow"], document["version"])
    calls = _Calls(client)
    latest: deque[str] = deque(maxlen=_MOST_CALLS)
    console = terminal.console()
    with Live(console=console, auto_refresh=False) as screen:

        def look(now: dict[str, Any]) -> None:
            latest.extend(calls.ended(now))
            beside = [*latest, *calls.open][-_MOST_CALLS:]
            screen.update(live_view.running_view(now, graph, beside, console.height), refresh=True)

        document = _wait(client, task_id, look, check)
        screen.update(live_view.last_view(document, graph), refresh=True)
    return document


class _Calls:
    """The calls of a task's models and their tools, each told once it has ended."""

    def __init__(self, client: "AgentClient") -> None:
        self._client = client
        self._after = ""
        self._told: set[str] = set()
        self.open: list[str] = []
        """Those under way, as lines."""

    def ended(self, document: dict[str, Any]) -> list[str]:
        """Return a line for each call that has ended since the last look."""
        from agent.cli.output import transcript
        from agent.tasks.read_models import transcript as record

        if not any(step["kind"] in record.MODELLED for step in document["steps"]):
            return []
        found = self._client.calls(document["id"], self._after)
        found.sort(key=lambda call: call["id"])
        ended = [call for call in found if call["status"] != "unknown"]
        fresh = [call for call in ended if call["id"] not in self._told]
        unknown = [call["id"] for call in found if call["status"] == "unknown"]
        self.open = [transcript.call_line(call) for call in found if call["id"] in unknown]
        # What is still under way is looked at again, with what came after it.
        before = [call["id"] for call in ended if not unknown or call["id"] < unknown[0]]
        self._after = before[-1] if before else self._after
        self._told = {call["id"] for call in ended if call["id"] > self._after}
        return [transcript.call_line(call) for call in fresh]


class _Lines:
    """Where there is no terminal: one line for each step that began or ended, and for each call."""

    def __init__(self, client: "AgentClient") -> None:
        self._seen: dict[str, str] = {}
        self._calls = _Calls(client)

    def __call__(self, document: dict[str, Any]) -> None:
        for line in self._calls.ended(document):
            terminal.note(f"  {line}")
        for step in document["steps"]:
            state = f"{step['status']} {step['attempt']}"
            has_begun = step["status"] != "pending" or (step["attempt"] > 1 and step["error"])
            if not has_begun or self._seen.get(step["name"]) == state:
                continue
            self._seen[step["name"]] = state
            terminal.note(task_view.step_line(step))
