"""Follows a task until it ends or waits for a person, with a live view on a terminal."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from agent.cli.errors import Exit
from agent.cli.invocation import program
from agent.cli.output import task_view, terminal

if TYPE_CHECKING:
    from agent.cli.client.base import AgentClient

ENDED = frozenset({"succeeded", "failed", "canceled"})
_SHORTEST_SECONDS = 0.05
_MAX_CALLS = 12
"""Lines of calls in a live view."""
_MAX_PIECES = 20
_NO_PIECE = 2**62
"""Later than every piece of a log."""
_IDLE_FACTOR = 10
"""Polling takes at most a tenth of a core, however large the task is."""

Render = Callable[[dict[str, Any]], None]


def follow(
    client: "AgentClient", task_id: str, *, is_quiet: bool, check: Callable[[], None] | None = None
) -> dict[str, Any]:
    """Return the task's document once it has ended or waits for a person.

    `check` is called between two polls; it may raise to stop waiting.
    """
    if is_quiet:
        return _wait(client, task_id, lambda _: None, check)
    if terminal.is_terminal():
        return _watch_live(client, task_id, check)
    return _wait(client, task_id, _LineReporter(client), check)


@contextmanager
def watching(task_id: str | None, again: str) -> Iterator[None]:
    """Say at Ctrl-C that only the watching ends, and how to look again."""
    try:
        yield
    except KeyboardInterrupt:
        note_unwatched(task_id, again)
        raise


def note_unwatched(task_id: str | None, again: str) -> None:
    """Print that this command has stopped watching, and how to look again."""
    goes_on = "" if task_id is None else "; the task goes on"
    terminal.note(f"\nno longer watching{goes_on}; to look again:\n  {program()} {again}")


def exit_code(document: dict[str, Any]) -> Exit:
    """Return the exit code of a command that waited for this task."""
    if document["status"] == "succeeded":
        return Exit.DONE
    if document["status"] in ENDED:
        return Exit.TASK_FAILED
    return Exit.WAITING


def waits_on_person(document: dict[str, Any]) -> bool:
    """Whether the task makes no progress until a person acts."""
    from agent.tasks.read_models import person_waits

    if document["status"] == "paused":
        return not any(
            step["status"] == "running" and not step["delay"] for step in document["steps"]
        )
    return bool(person_waits.waits_on_person(document))


def _wait(
    client: "AgentClient", task_id: str, render: Render, check: Callable[[], None] | None
) -> dict[str, Any]:
    while True:
        started = time.monotonic()
        document = client.task(task_id)
        render(document)
        if document["status"] in ENDED or waits_on_person(document):
            return document
        if check is not None:
            check()
        time.sleep(max(_SHORTEST_SECONDS, (time.monotonic() - started) * _IDLE_FACTOR))


def _watch_live(
    client: "AgentClient", task_id: str, check: Callable[[], None] | None
) -> dict[str, Any]:
    from rich.live import Live

    from agent.cli.output import live_view

    document = client.task(task_id)
    graph = client.graph(document["workflow"], document["version"])
    calls = _CallTracker(client)
    latest: deque[str] = deque(maxlen=_MAX_CALLS)
    console = terminal.console()
    with Live(console=console, auto_refresh=False) as screen:

        def render(now: dict[str, Any]) -> None:
            latest.extend(calls.ended(now))
            beside = [*latest, *calls.open, *calls.progress][-_MAX_CALLS:]
            screen.update(live_view.running_view(now, graph, beside, console.height), refresh=True)

        document = _wait(client, task_id, render, check)
        screen.update(live_view.last_view(document, graph), refresh=True)
    return document


class _CallTracker:
    """Finds the model and tool calls of a task that have ended, each once."""

    def __init__(self, client: "AgentClient") -> None:
        self._client = client
        self._after = ""
        self._reported: set[str] = set()
        self.open: list[str] = []
        """The running calls, as lines."""
        self.progress: list[str] = []
        """How far the running tools are, as lines."""

    def ended(self, document: dict[str, Any]) -> list[str]:
        """Return a line for each call that has ended since the last poll."""
        from agent.cli.output import transcript
        from agent.tasks.read_models import transcript as record

        if not any(step["kind"] in record.MODELLED for step in document["steps"]):
            return []
        calls = self._client.calls(document["id"], self._after)
        calls.sort(key=lambda call: call["id"])
        ended = [call for call in calls if call["status"] != "unknown"]
        fresh = [call for call in ended if call["id"] not in self._reported]
        unknown = [call["id"] for call in calls if call["status"] == "unknown"]
        self.open = [transcript.call_line(call) for call in calls if call["id"] in unknown]
        self.progress = self._progress(document["id"], calls, unknown)
        # Running calls are read again, with the calls after them.
        before = [call["id"] for call in ended if not unknown or call["id"] < unknown[0]]
        self._after = before[-1] if before else self._after
        self._reported = {call["id"] for call in ended if call["id"] > self._after}
        return [transcript.call_line(call) for call in fresh]

    def _progress(self, task_id: str, calls: list[dict[str, Any]], running: list[str]) -> list[str]:
        """Return how far the running tools are, as far as they tell: a line for each step."""
        steps = dict.fromkeys(
            call["step"]
            for call in calls
            if call["id"] in running and call["action"].startswith("tool.")
        )
        lines = []
        for step in steps:
            pieces = self._client.logs(task_id, step, None, _MAX_PIECES, before=_NO_PIECE)
            last = [piece["text"] for piece in pieces if piece["stream"] == "progress"][-1:]
            lines += [f"{step}: {text.strip()}" for text in last]
        return lines


class _LineReporter:
    """Prints a line for each step that starts or ends and for each call, without a terminal."""

    def __init__(self, client: "AgentClient") -> None:
        self._seen: dict[str, str] = {}
        self._calls = _CallTracker(client)

    def __call__(self, document: dict[str, Any]) -> None:
        known = self._calls.progress
        lines = self._calls.ended(document)
        for line in [*lines, *(line for line in self._calls.progress if line not in known)]:
            terminal.note(f"  {line}")
        for step in document["steps"]:
            state = f"{step['status']} {step['attempt']}"
            has_begun = step["status"] != "pending" or (step["attempt"] > 1 and step["error"])
            if not has_begun or self._seen.get(step["name"]) == state:
                continue
            self._seen[step["name"]] = state
            terminal.note(task_view.step_line(step, document["status"]))
