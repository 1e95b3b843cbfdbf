"""Commands that agents give through the tool `engine`: recorded with the event, and applied once."""

from agent.core.plain_json import Json
from agent.core.quick_classes.quick_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AgentCall:
    """The tool use of an agent that gives a command."""

    task_id: str
    step: str
    key: str
    """The key of the call: under it the command is applied once, however often it is sent."""


def event_data(by: AgentCall | None) -> dict[str, Json]:
    """Return the event data that names the call behind a command."""
    return {} if by is None else {"by": {"task": by.task_id, "step": by.step, "call": by.key}}
