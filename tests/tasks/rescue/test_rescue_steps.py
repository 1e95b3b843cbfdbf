"""A dead worker with more steps than one transaction puts back: none is missed, none wrongly blamed."""

import socket
import subprocess
from typing import Any

import pytest

from agent.core.clock import SECOND
from agent.core.waits import Timer
from agent.steps.attempt.services import Limits
from agent.steps.types.outcome import Waiting
from agent.store.db.database import Database
from agent.store.engine import reads, workers
from agent.tasks.commit.batch import Batch, JournalEntry
from agent.tasks.rescue import rescue_steps
from agent.tasks.rules import row_writer
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.state.isolation import WAITS_FOR_STORE
from agent.tasks.worker.attempts import claim_of
from tests.support.definitions import unreadable
from tests.support.engine import Hand, HandClock, graph, step
from tests.support.interventions import intend, lose


class KilledError(Exception):
    """Stands for the end of the rescuer's process."""


def rescue(hand: Hand) -> int:
    """Put back the steps of a dead worker, in one pass."""
    owner = hand.committer.worker_id
    with hand.database.connect("writer") as tx:
        with tx.transaction():
            workers.retire(tx, owner, hand.clock.now(), "worker.died")
        return rescue_steps.take_over(tx, GraphCache(), hand.clock, [owner], is_process_gone=True)


def isolated_beside_others(database: Database) -> tuple[Hand, str]:
    """Return a worker that runs two steps beside an isolated one, the last of the three by id."""
    first, second = Hand(database), Hand(database)
    instant = first.clock.now() + 10 * SECOND
    first.submit(*(graph(step(name), name=name) for name in ("one", "two")))
    first.settle(dict.fromkeys(("one", "two"), Waiting(Timer(instant), instant, {})))
    task_id = first.start(graph(step("poison"), name="poisonous"))
    lose(first)
    first.close()
    second.commit()
    assert second.names() == ["poison"]
    second.skip(11)
    second.commit()
    assert second.names() == ["one", "poison", "two"]
    assert second.rows("SELECT count(*) FROM steps WHERE alone = 2") == [(1,)]
    return second, task_id


def error_of(hand: Hand, task_id: str) -> str:
    """Return the code of the isolated step's error."""
    assert hand.statuses(task_id) == {"poison": "pending"}
    return str(hand.steps(task_id)["poison"]["error"]["code"])


def test_steps_of_unreadable_tasks_hide_no_others(
    hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pass goes past whole batches of steps that it cannot put back."""
    monkeypatch.setattr(rescue_steps, "MAX_STEPS_AT_ONCE", 2)
    bad, good = graph(step("a"), name="bad"), graph(step("a"), name="good")
    *stuck, _ = tasks = hand.submit(bad, bad, bad, bad, bad, good)
    with unreadable(hand, "bad"):
        assert rescue(hand) == 1
    assert hand.statuses(tasks[-1]) == {"a": "pending"}
    assert [hand.statuses(task_id)["a"] for task_id in stuck] == ["running"] * 5
    assert rescue(hand) == 5


def test_an_isolated_step_is_not_blamed_in_a_batch_of_its_own(
    checked: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All steps of a dead worker count, in whichever batches they are released."""
    hand, task_id = isolated_beside_others(checked)
    monkeypatch.setattr(rescue_steps, "MAX_STEPS_AT_ONCE", 1)
    assert rescue(hand) == 3
    assert error_of(hand, task_id) == "lost"
    hand.close()


@pytest.mark.parametrize("batches", [1, 2])
def test_an_isolated_step_is_not_blamed_after_the_rescuer_died(
    checked: Database, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    """The next rescuer finds fewer steps, and decides as the first one would have."""
    hand, task_id = isolated_beside_others(checked)
    write, written = row_writer.write, 0

    def die(*arguments: Any) -> None:
        nonlocal written
        if written == batches:
            raise KilledError
        written += 1
        write(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(rescue_steps, "MAX_STEPS_AT_ONCE", 1)
        patch.setattr(row_writer, "write", die)
        with pytest.raises(KilledError):
            rescue(hand)
    assert rescue(hand) == 3 - batches
    assert error_of(hand, task_id) == "lost"
    hand.close()


def test_an_isolated_step_is_not_blamed_after_it_could_not_be_read(checked: Database) -> None:
    """The others are put back at once; when it is its turn, they still count."""
    hand, task_id = isolated_beside_others(checked)
    with unreadable(hand, "poisonous"):
        assert rescue(hand) == 2
    assert rescue(hand) == 1
    assert error_of(hand, task_id) == "lost"
    hand.close()


def test_an_isolated_step_is_not_blamed_after_its_task_was_locked(
    postgres_database: Database,
) -> None:
    """While it cannot be on record that others ran beside it, they stay where they are."""
    postgres_database.clock = HandClock()
    hand, task_id = isolated_beside_others(postgres_database)
    with postgres_database.connect("writer") as tx, tx.transaction():
        assert len(reads.lock_tasks(tx, ("id",), [task_id])) == 1
        rescue(hand)
    rescue(hand)
    assert error_of(hand, task_id) == "lost"
    hand.close()


@pytest.mark.parametrize("has_neighbour", [False, True])
def test_only_the_worker_itself_counts(checked: Database, has_neighbour: bool) -> None:
    """A step that ran isolated is the cause, whatever other workers run."""
    first, second, third = Hand(checked), Hand(checked), Hand(checked)
    task_id = first.start(graph(step("poison"), name="poisonous"))
    lose(first)
    second.commit()
    if has_neighbour:
        third.start(graph(step("beside"), name="one"))
    assert rescue(second) == 1
    assert error_of(second, task_id) == "process_died"
    for hand in (first, second, third):
        hand.close()


def test_a_step_that_has_returned_loses_no_attempt_to_crashes(checked: Database) -> None:
    """Its output waits for a store; the step that kills the worker each time is found, and fails alone."""
    innocent = poison = ""
    for crash in range(3):
        hand = Hand(checked)
        if crash == 0:
            innocent, poison = hand.submit(
                graph(step("innocent"), name="i", priority="high"), graph(step("poison"), name="p")
            )
        else:
            hand.commit(may_isolate=False, slots=1)
            assert hand.names() == ["innocent"]
        claimed = hand.claimed("innocent")
        waits = JournalEntry(claim_of(claimed), claimed.graph, delay={}, alone=WAITS_FOR_STORE)
        # What has returned does not run any more: the other one may be isolated beside it.
        hand.commit(Batch(entries=[waits]), running=0)
        assert hand.names() == ["innocent", "poison"]
        lose(hand)
        assert hand.steps(poison)["poison"]["error"]["code"] == (
            "process_died" if crash else "lost"
        )
        assert hand.steps(innocent)["innocent"]["attempt"] == crash + 2
        hand.close()
    hand = Hand(checked)
    hand.commit(may_isolate=False, slots=1)
    assert hand.claimed("innocent").may_act
    hand.succeed("innocent")
    hand.close()


def take_over_paid(hand: Hand, timeout: float | None, call_seconds: float, **worker: Any) -> float:
    """Lose a step in mid-effect with a dead worker; return how long the effect counts as under way."""
    task_id = hand.start(graph(step("pay", timeout_seconds=timeout)))
    intend(hand, hand.claimed("pay"))
    with hand.database.connect("writer") as tx, tx.transaction():
        own = "UPDATE tool_calls SET expires_at = send_by + :own"
        tx.execute(own, own=int(call_seconds * SECOND))
        facts = {"host": "another", "process_id": 1, "process_started": "00000000:1"} | worker
        sql = "UPDATE workers SET host = :host, process_id = :process_id,"
        tx.execute(f"{sql} process_started = :process_started, dead = 1", **facts)
    owner, limits = hand.committer.worker_id, Limits(call_seconds=60, attempt_seconds=1800)
    with hand.database.connect("writer") as tx:
        rescue_steps.take_over(
            tx, GraphCache(), hand.clock, [owner], is_process_gone=False, limits=limits
        )
    ((expires_at, send_by),) = hand.rows("SELECT expires_at, send_by FROM tool_calls")
    assert hand.statuses(task_id) == {"pay": "pending"}
    return float((expires_at - send_by) / SECOND)


@pytest.mark.parametrize(
    ("timeout", "call_seconds", "own"), [(None, 60, 1800), (None, 5, 5), (90, 90, 90)]
)
def test_an_effect_of_a_silent_worker_may_last_as_long_as_its_attempt(
    hand: Hand, timeout: float | None, call_seconds: float, own: float
) -> None:
    """Unless it has a timeout of its own: the worker may be frozen, and its command run."""
    assert take_over_paid(hand, timeout, call_seconds) == pytest.approx(own, abs=5)


@pytest.mark.parametrize("boot", ["this", "an earlier"])
def test_an_effect_is_decided_at_once_where_its_process_has_surely_ended(
    hand: Hand, boot: str
) -> None:
    """That of a worker of this machine, since it was started; of any other nothing is known."""
    ((started,),) = hand.rows("SELECT process_started FROM workers")
    gone = subprocess.Popen(["true"])
    gone.wait()
    started = f"{started.partition(':')[0] if boot == 'this' else '00000000'}:1"
    here = {"host": socket.gethostname(), "process_id": gone.pid, "process_started": started}
    assert (take_over_paid(hand, None, 60, **here) < 10) == (boot == "this")
