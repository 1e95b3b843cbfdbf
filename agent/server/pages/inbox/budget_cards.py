"""Budgets that are used up, as cards: the owner, the use, and the limit to raise."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.server.pages.framework.templates import pause_words
from agent.steps.types.outcome import Json
from agent.store.db.database import Connection
from agent.store.read import attention
from agent.tasks.errors import NotFoundError
from agent.tasks.read_models import spending, task_documents
from agent.tasks.read_models.task_documents import AmbiguousIdError

_MOST: Final = 20
_LIMITS: Final = {"--tokens": "tokens", "--usd": "usd", "--time": "minutes"}
"""The field for the limit that a command's option raises."""


@dataclass(slots=True)
class BudgetCard:
    """One used-up budget, and how many tasks it pauses."""

    task_id: str
    workflow: str
    reason: str
    owner_id: str | None
    """The task whose budget it is; None for the day's budget, which the configuration sets."""
    step: str
    """The step whose budget it is, if it is not the task's."""
    fields: tuple[str, ...]
    budget: dict[str, Json] | None
    count: int = 1


def cards(connection: Connection) -> list[BudgetCard]:
    """Return the used-up budgets, each once for all the tasks that it pauses."""
    cards: dict[str, BudgetCard] = {}
    for row in attention.budget_pauses(connection, _MOST):
        arguments = _arguments(row["pause_command"])
        key = row["pause_command"] if arguments else row["id"]
        if key in cards:
            cards[key].count += 1
        else:
            cards[key] = _card(connection, row, arguments)
    return list(cards.values())


def card_of(connection: Connection, task: dict[str, Json]) -> BudgetCard | None:
    """Return the used-up budget that pauses a task (`task_documents.summary`), if one does."""
    if task["pause_kind"] != "budget":
        return None
    row = {**task, "workflow_name": task["workflow"]}
    return _card(connection, row, _arguments(task["pause_command"]))


def _arguments(pause_command: str | None) -> list[str]:
    """Return what follows `budget` in the command that ends a pause: TASK [--step NAME] [--tokens N] …

    The day's budget has no such command.
    """
    command = shlex.split(pause_command or "")
    return command[1:] if command[:1] == ["budget"] else []


def _card(connection: Connection, row: dict[str, Any], arguments: Sequence[str]) -> BudgetCard:
    owner_id = _owner(connection, row["id"], arguments[0]) if arguments else None
    step = _after(arguments, "--step")
    used = spending.budget_document(connection, owner_id)["budgets"] if owner_id else []
    named = tuple(field for option, field in _LIMITS.items() if option in arguments)
    return BudgetCard(
        task_id=row["id"],
        workflow=row["workflow_name"],
        reason=pause_words(row["pause_reason"] or ""),
        owner_id=owner_id,
        step=step,
        fields=named or tuple(_LIMITS.values()),
        budget=next((budget for budget in used if (budget["step"] or "") == step), None),
    )


def _after(arguments: Sequence[str], option: str) -> str:
    return arguments[arguments.index(option) + 1] if option in arguments[:-1] else ""


def _owner(connection: Connection, task_id: str, end_of_id: str) -> str | None:
    """Return the task whose budget it is: the paused one, or one of its ancestors."""
    if task_id.endswith(end_of_id):
        return task_id
    try:
        return task_documents.find_task(connection, end_of_id)
    except (NotFoundError, AmbiguousIdError):
        return None
