"""The judge of sieges: a sound record passes, and every falsified one is noticed."""

import ast
from pathlib import Path
from typing import Any

import pytest

from tests.siege.judging import violations
from tests.siege.planting import PLANTED, plant
from tests.siege.record import Record, Sent
from tests.siege.workload import EXPECTED, Effect

_INNER = ("first", "second")


def sound() -> Record:
    """Return the record of one task of each workflow, all well."""
    record = Record()
    for number, (name, workflow) in enumerate(EXPECTED.items()):
        ticket, task_id = f"t{number}", f"task-{number}"
        record.tickets[ticket] = (name, task_id)
        record.started.append((ticket, task_id))
        own: list[dict[str, str]] = []
        inner: list[dict[str, str]] = []
        for at, (effect, promised) in enumerate(workflow.effects.items()):
            step = {"name": promised.step, "status": promised.ends}
            (inner if effect in _INNER else own).append(step)
            if promised.ends != "skipped":
                record.sent[f"{ticket}/{effect}"].append(_sent(promised, at))
        children = [f"{task_id}-child"] if inner else []
        record.documents[task_id] = _document(task_id, workflow.status, own, children)
        for child in children:
            record.documents[child] = _document(child, "succeeded", inner, [])
        record.signed.add(ticket)
    return record


def _sent(promised: Effect, at: int) -> Sent:
    if promised.kind == "final":
        return Sent(at, acted=False, answer="401")
    return Sent(at, acted=True, answer="line" if promised.kind == "shell" else "200")


def _document(
    task_id: str, status: str, steps: list[dict[str, str]], children: list[str]
) -> dict[str, Any]:
    return {"id": task_id, "status": status, "steps": steps, "children": children, "error": None}


def test_a_sound_record_has_no_violations() -> None:
    """Every task ended, every effect happened once and in its order."""
    assert violations(sound()) == []


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_a_falsified_record_is_noticed(name: str) -> None:
    """The judge names what was falsified."""
    record = sound()
    where = plant(record, name)
    found = violations(record)
    assert any(sentence.startswith(f"{where}") for sentence in found), found


def test_repetitions_with_a_reason_are_no_violations() -> None:
    """A refusal, a person's `retry`, a remote's `no`, and a known key allow another request."""
    record = sound()
    retried = record.sent["t0/open"]
    retried[:0] = [Sent(-3, acted=False, answer="429"), Sent(-2, acted=False, answer="cut")]
    record.verdicts["t0/open"]["call-1"] = "retry"
    record.sent["t0/asked"].insert(0, Sent(0, acted=False, answer="cut"))
    record.confirmations["t0/asked"] += [None, False]
    first = record.sent["t0/keyed"][0]
    record.sent["t0/keyed"] = [
        Sent(first.at, acted=True, answer="cut"),
        Sent(10**6, acted=False, answer="replayed"),
    ]
    assert violations(record) == []
    record.verdicts["t0/open"].clear()
    assert len(violations(record)) == 2


def test_a_success_without_a_response_is_a_violation() -> None:
    """A cut connection is no success, unless a person or the remote confirms it."""
    record = sound()
    record.sent["t0/asked"] = [Sent(2, acted=True, answer="cut")]
    assert any("taken for done" in sentence for sentence in violations(record))
    record.confirmations["t0/asked"].append(True)
    assert violations(record) == []


def test_nothing_of_the_engine_is_imported() -> None:
    """The code under test must not judge itself."""
    for path in Path(__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not [name for name in names if name.split(".")[0] == "agent"], path
