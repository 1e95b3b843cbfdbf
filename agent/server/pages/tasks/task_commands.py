"""The operator's commands that make sense for a task now, each with its consequences in words."""

from dataclasses import dataclass
from typing import Any, Final

from agent.core.scopes import Scope
from agent.core.state_machine import STEP_ENDED
from agent.server.pages.framework.page_request import PageRequest
from agent.store.db.database import Connection
from agent.store.engine import lineage, workflow_versions
from agent.tasks.operator import newer_versions
from agent.tasks.operator.state_table import COMMANDS
from agent.tasks.read_models import transcript

Document = dict[str, Any]

_MOST_NAMES: Final = 6
_FEW_NAMES: Final = 3
_MOST_CHECKED: Final = 500
"""Steps and items of a task that are compared with the newest version."""
_SCOPES: Final[dict[str, Scope]] = {"budget": "approve"}
"""The scopes of commands, where it is not `operate`."""


@dataclass(frozen=True, slots=True)
class OfferedCommand:
    """One command."""

    name: str
    label: str
    consequences: str
    is_danger: bool = False
    summary: str = ""
    """The consequences in brief, where the button also stands elsewhere."""
    refusal: str = ""
    """Why the command would be refused now; there is no button then."""


def offered_commands(
    connection: Connection, task: Document, request: PageRequest
) -> list[OfferedCommand]:
    """Return the commands that the viewer may give, and that would change something."""
    offered = [
        _pause(task),
        _resume(task),
        *_retries(connection, task, request),
        _fork(),
        _signal(),
        *_budget(task),
        _cancel(task),
    ]
    return [
        command
        for command in offered
        if request.may(_SCOPES.get(_table_name(command.name), "operate"))
        and COMMANDS[_table_name(command.name)][task["status"]].effect == "act"
    ]


def _table_name(name: str) -> str:
    return "retry" if name == "retry-latest" else name


def _pause(task: Document) -> OfferedCommand:
    running = _names([step for step in task["steps"] if step["status"] == "running"])
    text = "Nothing new starts until you resume it."
    if running:
        text += f" What runs now goes on to its end or to its next checkpoint: {running}."
    return OfferedCommand("pause", "Pause", text)


def _resume(task: Document) -> OfferedCommand:
    text = "Continues where it stopped. What came due during the pause takes effect now."
    if task["pause_kind"] == "budget":
        text = "Continues, and pauses again at the next call unless the budget is raised."
    return OfferedCommand("resume", "Resume", text)


def _cancel(task: Document) -> OfferedCommand:
    running = _names([step for step in task["steps"] if step["status"] == "running"])
    open_children = sum(child["ended_us"] is None for child in task["children"])
    text = "Stops the task. A retry can continue it later."
    if running:
        text += f" It interrupts what runs now: {running}."
    if open_children:
        text += f" Its {_count(open_children, 'open child task', 'open child tasks')} end with it."
    return OfferedCommand("cancel", "Cancel", text, is_danger=True)


def _retries(connection: Connection, task: Document, request: PageRequest) -> list[OfferedCommand]:
    """Return the retries of an ended task, unless there is one already."""
    if COMMANDS["retry"][task["status"]].effect != "act":
        return []
    if any(successor["relation"] == "retry" for successor in task["successors"]):
        return []
    kept = [step for step in task["steps"] if _is_kept(step)]
    again = [step for step in task["steps"] if not _is_kept(step)]
    text = f"Starts a new task that runs again: {_names(again)}."
    if kept:
        text += f" The results of {_names(kept)} are kept."
    text += " Calls whose results are recorded are not sent again."
    retries = [OfferedCommand("retry", "Retry", text, summary=_retry_summary(again, kept))]
    newer = newer_version(connection, task)
    if newer is not None:
        text = (
            f"The same, under version {newer} of {task['workflow']} instead of {task['version']}."
            " Results are kept where the steps still fit; questions that read differently, or whose"
            " answers do not cover a changed step, are asked again."
        )
        label = f"Retry on version {newer}"
        refusal = newest_refusal(connection, task, request)
        retries.append(OfferedCommand("retry-latest", label, text, refusal=refusal))
    return retries


def _retry_summary(again: list[Document], kept: list[Document]) -> str:
    results = f" and keeps {_count(len(kept), 'result', 'results')}" if kept else ""
    steps = _names(again) if len(again) <= _FEW_NAMES else _count(len(again), "step", "steps")
    return f"A retry runs {steps} again{results}. Recorded calls are not sent again."


def _is_kept(step: Document) -> bool:
    status, why = step["status"], step["skip_reason"]
    return bool(status == "succeeded" or (status == "skipped" and why == "if"))


def _fork() -> OfferedCommand:
    text = "Starts a new task from a step that you choose, with the same input or an edited one."
    return OfferedCommand("fork", "Fork", text)


def _signal() -> OfferedCommand:
    text = "Sends a named value; it is kept until a step waits for it."
    return OfferedCommand("signal", "Send a signal", text)


def _budget(task: Document) -> list[OfferedCommand]:
    """Return the command for a task that calls models, unless the card of its used-up budget has it."""
    if task["pause_kind"] == "budget" or not any(map(_may_spend, task["steps"])):
        return []
    text = (
        "Limits what the task, with its child tasks, may use of models from its start to its end."
    )
    return [OfferedCommand("budget", "Set the budget", text)]


def _may_spend(step: Document) -> bool:
    return step["kind"] in transcript.MODELLED or step["kind"] == "workflow"


def repeated_effects(connection: Connection, task: Document, from_index: int) -> list[str]:
    """Return the steps that a fork runs again although they acted, or may have.

    `Operator.fork` reports the same afterwards; this is for a person who has yet to decide. Steps
    whose answers an edited input makes stale come on top.
    """
    steps = task["steps"]
    again = {from_index}
    for step in steps:
        if step["status"] not in STEP_ENDED or step["status"] == "failed":
            again.add(step["index"])
    is_growing = True
    while is_growing:
        more = {step["index"] for step in steps if again & set(step["depends_on"])} - again
        again |= more
        is_growing = bool(more)
    acted = {index for index, _ in lineage.addresses_that_acted(connection, task["id"])}
    return [step["name"] for step in steps if step["index"] in acted & again]


def newer_version(connection: Connection, task: Document) -> int | None:
    """Return the newest version of the task's workflow, if it is newer than the task's."""
    latest = workflow_versions.latest_number(connection, task["workflow"])
    return latest if latest is not None and latest > task["version"] else None


def newest_refusal(
    connection: Connection, task: Document, request: PageRequest, from_step: str | None = None
) -> str:
    """Return why a retry, or a fork from a step, would be refused on the newest version, if it would.

    Of a task with more steps than a page may read, only the command itself finds out.
    """
    if sum(1 + (step["parallel_count"] or 0) for step in task["steps"]) > _MOST_CHECKED:
        return ""
    now = request.context.database.clock.now()
    graphs = request.context.graphs
    return newer_versions.refusal(connection, graphs, task["id"], now, from_step) or ""


def _names(steps: list[Document]) -> str:
    named = ", ".join(step["name"] for step in steps[:_MOST_NAMES])
    more = len(steps) - _MOST_NAMES
    return f"{named} and {more} more" if more > 0 else named


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
