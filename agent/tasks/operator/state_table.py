"""What each of an operator's commands does in each state of a task, as data.

`act` does something, `same` is harmless and says so, `refuse` is not allowed and says why. The table
drives the operator, the documentation and the test of every cell.
"""

from typing import Final, Literal, NamedTuple

from agent.core.state_machine import TaskStatus

Effect = Literal["act", "same", "refuse"]


class Cell(NamedTuple):
    """What one command does in one state, and what it says when it does nothing."""

    effect: Effect
    message: str = ""


_ACT: Final = Cell("act")


def _refused(message: str) -> Cell:
    return Cell("refuse", message)


def _same(message: str) -> Cell:
    return Cell("same", message)


_ENDED: Final = {
    TaskStatus.SUCCEEDED: "it has succeeded",
    TaskStatus.FAILED: "it has failed",
    TaskStatus.CANCELED: "it was cancelled",
}


def _refused_when_ended() -> dict[str, Cell]:
    return {status: _refused(why) for status, why in _ENDED.items()}


COMMANDS: Final[dict[str, dict[str, Cell]]] = {
    "pause": {
        TaskStatus.PENDING: _refused("it has not started yet"),
        TaskStatus.RUNNING: _ACT,
        TaskStatus.PAUSED: _same("it is paused already"),
        **_refused_when_ended(),
    },
    "resume": {
        TaskStatus.PENDING: _refused("it has not started yet"),
        TaskStatus.RUNNING: _same("it is running already"),
        TaskStatus.PAUSED: _ACT,
        **_refused_when_ended(),
    },
    "cancel": {
        TaskStatus.PENDING: _ACT,
        TaskStatus.RUNNING: _ACT,
        TaskStatus.PAUSED: _ACT,
        TaskStatus.SUCCEEDED: _refused("it has succeeded"),
        TaskStatus.FAILED: _refused("it has failed"),
        TaskStatus.CANCELED: _same("it is cancelled already"),
    },
    "retry": {
        TaskStatus.PENDING: _refused("it has not started yet"),
        TaskStatus.RUNNING: _refused("it is still running; cancel it first"),
        TaskStatus.PAUSED: _refused("it is paused; resume or cancel it first"),
        TaskStatus.SUCCEEDED: _refused("it has succeeded; fork it to run steps again"),
        TaskStatus.FAILED: _ACT,
        TaskStatus.CANCELED: _ACT,
    },
    "fork": dict.fromkeys(TaskStatus, _ACT),
    "resolve": {
        TaskStatus.PENDING: _refused("it has not started yet"),
        TaskStatus.RUNNING: _ACT,
        TaskStatus.PAUSED: _ACT,
        **_refused_when_ended(),
    },
    "budget": {
        TaskStatus.PENDING: _refused("it has not started yet"),
        TaskStatus.RUNNING: _ACT,
        TaskStatus.PAUSED: _ACT,
        **_refused_when_ended(),
    },
    "signal": {
        TaskStatus.PENDING: _ACT,
        TaskStatus.RUNNING: _ACT,
        TaskStatus.PAUSED: _ACT,
        **_refused_when_ended(),
    },
}
