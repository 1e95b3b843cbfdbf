"""The effect of each operator command in each state of a task, as data.

`act` changes the task, `same` has nothing to change and says so, `refuse` is not allowed and says why.
The table drives the operator, the documentation and the test of every cell.
"""

from typing import Final, Literal, NamedTuple

from agent.core.state_machine import TaskStatus
from agent.tasks.errors import RefusedError

Effect = Literal["act", "same", "refuse"]


class Cell(NamedTuple):
    """The effect of one command in one state, and its message when it changes nothing."""

    effect: Effect
    message: str = ""


_ACT: Final = Cell("act")
_ENDED: Final = {
    TaskStatus.SUCCEEDED: "the task succeeded",
    TaskStatus.FAILED: "the task failed",
    TaskStatus.CANCELED: "the task was canceled",
}
_NOT_STARTED: Final = "the task has not started yet"


def _refused(message: str) -> Cell:
    return Cell("refuse", message)


def _same(message: str) -> Cell:
    return Cell("same", message)


def _refused_when_ended(what: str) -> dict[str, Cell]:
    return {status: _refused(f"{what}: {why}") for status, why in _ENDED.items()}


COMMANDS: Final[dict[str, dict[str, Cell]]] = {
    "pause": {
        TaskStatus.PENDING: _refused(f"nothing to pause: {_NOT_STARTED}"),
        TaskStatus.RUNNING: _ACT,
        TaskStatus.PAUSED: _same("the task is already paused"),
        **_refused_when_ended("nothing to pause"),
    },
    "resume": {
        TaskStatus.PENDING: _refused(f"nothing to resume: {_NOT_STARTED}"),
        TaskStatus.RUNNING: _same("the task is already running"),
        TaskStatus.PAUSED: _ACT,
        **_refused_when_ended("nothing to resume"),
    },
    "cancel": {
        TaskStatus.PENDING: _ACT,
        TaskStatus.RUNNING: _ACT,
        TaskStatus.PAUSED: _ACT,
        **_refused_when_ended("nothing to cancel"),
        TaskStatus.CANCELED: _same("the task is already canceled"),
    },
    "retry": {
        TaskStatus.PENDING: _refused(f"nothing to retry: {_NOT_STARTED}"),
        TaskStatus.RUNNING: _refused("cannot retry: the task is still running; cancel it first"),
        TaskStatus.PAUSED: _refused("cannot retry: the task is paused; resume or cancel it first"),
        TaskStatus.SUCCEEDED: _refused(
            "nothing to retry: the task succeeded; fork it to run steps again"
        ),
        TaskStatus.FAILED: _ACT,
        TaskStatus.CANCELED: _ACT,
    },
    "fork": dict.fromkeys(TaskStatus, _ACT),
    "resolve": {
        TaskStatus.PENDING: _refused(f"nothing to resolve: {_NOT_STARTED}"),
        TaskStatus.RUNNING: _ACT,
        TaskStatus.PAUSED: _ACT,
        TaskStatus.SUCCEEDED: _refused("nothing to resolve: the task succeeded"),
        # Its effects may have happened: a person records what became of them.
        TaskStatus.FAILED: _ACT,
        TaskStatus.CANCELED: _ACT,
    },
    "budget": {
        TaskStatus.PENDING: _refused(f"no budget to raise: {_NOT_STARTED}"),
        TaskStatus.RUNNING: _ACT,
        TaskStatus.PAUSED: _ACT,
        **_refused_when_ended("no budget to raise"),
    },
    "signal": {
        TaskStatus.PENDING: _ACT,
        TaskStatus.RUNNING: _ACT,
        TaskStatus.PAUSED: _ACT,
        **_refused_when_ended("no step will take the signal"),
    },
}


def check(command: str, status: str) -> Cell:
    """Return the effect of a command in a state; raise `RefusedError` where it is not allowed."""
    cell = COMMANDS[command][status]
    if cell.effect == "refuse":
        raise RefusedError(cell.message)
    return cell
