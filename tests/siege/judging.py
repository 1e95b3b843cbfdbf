"""The judge of a siege: compares the remotes' ledger with what tasks promise.

It reads a `Record` and knows nothing of the engine, its database or its checker.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from tests.siege.record import Record, Sent
from tests.siege.workload import EXPECTED, Effect

_ENDED: Final = frozenset({"succeeded", "failed", "canceled"})
_DEFINITE: Final = frozenset({"200", "401", "429", "replayed", "line"})
"""Answers that say whether the remote acted; after any other the outcome is unknown."""
_PUT_TO_A_PERSON: Final = frozenset({"plain", "call"})


def violations(record: Record) -> list[str]:
    """Return every broken promise as a sentence; none if all is well."""
    return [*_tasks(record), *_strays(record), *_effects(record)]


def _tasks(record: Record) -> Iterator[str]:
    """Every acknowledged task exists, once, and has ended as it must."""
    counts = Counter(ticket for ticket, _ in record.started)
    for ticket, (workflow, task_id) in record.tickets.items():
        document = record.documents.get(task_id)
        if document is None:
            yield f"{ticket}: task {task_id} was acknowledged and does not exist"
            continue
        if document["status"] not in _ENDED:
            yield f"{ticket}: task {task_id} has not ended: {document['status']}"
        elif document["status"] != EXPECTED[workflow].status:
            yield (
                f"{ticket}: task {task_id} {document['status']}, where {workflow} must have"
                f" {EXPECTED[workflow].status}: {document.get('error')}"
            )
        if counts[ticket] != 1:
            yield f"{ticket}: started {counts[ticket]} times under one key"


def _strays(record: Record) -> Iterator[str]:
    """Nothing happens that belongs to no acknowledged task."""
    known = {
        f"{ticket}/{name}"
        for ticket, (workflow, _) in record.tickets.items()
        for name in EXPECTED[workflow].effects
    }
    for effect in sorted(set(record.sent) - known):
        yield f"{effect}: an effect of no task that was acknowledged"


def _effects(record: Record) -> Iterator[str]:
    for ticket, (workflow, task_id) in record.tickets.items():
        steps = steps_of(record, task_id)
        for name, promised in EXPECTED[workflow].effects.items():
            step = steps.get(promised.step)
            yield from _count(record, f"{ticket}/{name}", promised)
            yield from _outcome(record, f"{ticket}/{name}", promised, step)
            yield from _order(record, ticket, name, promised)
        if workflow == "mixed" and record.sent[f"{ticket}/signed"] and ticket not in record.signed:
            yield f"{ticket}/signed: happened without the yes that it needs"


def steps_of(record: Record, task_id: str) -> dict[str, dict[str, Any]]:
    """Return the steps of a task and of its children, by name."""
    document = record.documents.get(task_id, {"steps": [], "children": []})
    found = {step["name"]: step for step in document["steps"]}
    for child in document["children"]:
        found |= steps_of(record, child)
    return found


def _count(record: Record, effect: str, promised: Effect) -> Iterator[str]:
    """An effect happens at most once, and is sent again only with a reason to."""
    sent = record.sent[effect]
    acted = sum(each.acted for each in sent)
    verdicts = Counter(record.verdicts[effect].values())
    # A command that failed has acted; the person may have sent it again all the same.
    if acted > 1:
        yield f"{effect}: happened {acted} times ({promised.kind})"
    if promised.kind == "keyed":
        return
    refused = sum(each.answer == "429" for each in sent)
    denied = record.confirmations[effect].count(False)
    allowed = 1 + refused + verdicts["retry"] + denied
    if len(sent) > allowed:
        yield (
            f"{effect}: sent {len(sent)} times ({promised.kind}: {_shown(sent)}), with {refused}"
            f" refusals, {verdicts['retry']} times `retry` by a person and {denied} times `no` by"
            " the remote"
        )
    unclear = sum(each.answer not in _DEFINITE for each in sent)
    if promised.kind in _PUT_TO_A_PERSON and sum(verdicts.values()) < unclear:
        yield (
            f"{effect}: {unclear} outcomes were unknown, and a person was asked"
            f" {sum(verdicts.values())} times ({_shown(sent)})"
        )


def _outcome(
    record: Record, effect: str, promised: Effect, step: dict[str, Any] | None
) -> Iterator[str]:
    """The recorded result of a step agrees with what happened."""
    sent = record.sent[effect]
    acted = sum(each.acted for each in sent)
    status = step["status"] if step is not None else "missing"
    if status != promised.ends:
        yield f"{effect}: its step is {status}, and must be {promised.ends}"
    if promised.ends == "skipped":
        if sent:
            yield f"{effect}: sent, though its step must be skipped ({_shown(sent)})"
        return
    must_act = promised.kind != "final"
    if status in ("succeeded", "failed") and acted == 0 and must_act:
        yield f"{effect}: its step is {status}, and it never happened ({_shown(sent)})"
    if promised.kind == "final" and acted:
        yield f"{effect}: a remote that always refuses has acted"
    if status == "succeeded" and promised.kind != "shell":
        is_answered = any(each.answer in ("200", "replayed") for each in sent)
        is_confirmed = (
            True in record.confirmations[effect] or "done" in record.verdicts[effect].values()
        )
        if not is_answered and not is_confirmed:
            yield f"{effect}: taken for done, though no answer confirmed it ({_shown(sent)})"


def _order(record: Record, ticket: str, name: str, promised: Effect) -> Iterator[str]:
    """Nothing is sent before what it depends on has happened."""
    sent = record.sent[f"{ticket}/{name}"]
    if not sent:
        return
    begun = min(each.at for each in sent)
    for before in promised.after:
        times = [each.at for each in record.sent[f"{ticket}/{before}"] if each.acted]
        if not times or min(times) > begun:
            yield f"{ticket}/{name}: sent before {before} had happened"


def _shown(sent: list[Sent]) -> str:
    return ", ".join(f"{each.answer}{'' if each.acted else ' without acting'}" for each in sent)
