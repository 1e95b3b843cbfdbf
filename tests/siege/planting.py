"""Falsified records: each breaks one promise, to show that the judge notices it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from tests.siege.record import Record, Sent


def plant(record: Record, name: str) -> str:
    """Break one promise in a sound record; return which effect or task was chosen."""
    return PLANTED[name](record)


def _task(record: Record, workflow: str = "mixed") -> tuple[str, dict[str, Any]]:
    """Choose the first task of a workflow."""
    ticket, task_id = next(
        (ticket, task_id) for ticket, (name, task_id) in record.tickets.items() if name == workflow
    )
    return ticket, record.documents[task_id]


def _duplicate(record: Record) -> str:
    effect = f"{_task(record)[0]}/open"
    done = next(sent for sent in record.sent[effect] if sent.acted)
    record.sent[effect].append(replace(done, at=done.at + 1))
    return effect


def _lost_effect(record: Record) -> str:
    effect = f"{_task(record)[0]}/close"
    record.sent[effect].clear()
    return effect


def _lost_task(record: Record) -> str:
    ticket, document = _task(record)
    del record.documents[document["id"]]
    return ticket


def _unended(record: Record) -> str:
    ticket, document = _task(record)
    document["status"] = "running"
    return ticket


def _twice(record: Record) -> str:
    ticket, _ = _task(record)
    record.started.append((ticket, "another"))
    return ticket


def _order(record: Record) -> str:
    effect = f"{_task(record)[0]}/signed"
    record.sent[effect] = [replace(sent, at=0) for sent in record.sent[effect]]
    return effect


def _sent_again(record: Record) -> str:
    """A final refusal that was sent again."""
    effect = f"{_task(record, 'refused')[0]}/denied"
    record.sent[effect].append(Sent(record.sent[effect][-1].at + 1, acted=False, answer="401"))
    return effect


def _unasked(record: Record) -> str:
    effect = f"{_task(record)[0]}/second"
    done = next(sent for sent in record.sent[effect] if sent.acted)
    record.sent[effect] = [replace(done, answer="cut")]
    record.verdicts[effect].clear()
    return effect


def _unsigned(record: Record) -> str:
    ticket, _ = _task(record)
    record.signed.discard(ticket)
    return ticket


def _stray(record: Record) -> str:
    record.sent["t999999/open"].append(Sent(1, acted=True, answer="200"))
    return "t999999/open"


def _skipped(record: Record) -> str:
    effect = f"{_task(record, 'refused')[0]}/never"
    record.sent[effect].append(Sent(2**63, acted=True, answer="200"))
    return effect


def _command_again(record: Record) -> str:
    """A command that failed and was run again."""
    effect = f"{_task(record, 'broken')[0]}/fails"
    record.sent[effect].append(Sent(record.sent[effect][-1].at + 1, acted=True, answer="line"))
    return effect


PLANTED: Final[dict[str, Callable[[Record], str]]] = {
    "command-again": _command_again,
    "duplicate": _duplicate,
    "lost-effect": _lost_effect,
    "lost-task": _lost_task,
    "order": _order,
    "sent-again": _sent_again,
    "skipped": _skipped,
    "stray": _stray,
    "twice": _twice,
    "unasked": _unasked,
    "unended": _unended,
    "unsigned": _unsigned,
}
