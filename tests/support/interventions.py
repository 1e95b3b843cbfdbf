"""What tests do to tasks of a `Hand` beside its commits: intents, dead workers, broken rows."""

from agent.core import ids
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.call_records import Intent
from agent.store.engine import workers
from agent.tasks.commit.batch import Batch, JournalEntry
from agent.tasks.rescue import rescue_steps
from agent.tasks.state.graph_cache import GraphCache
from agent.tasks.worker.attempts import claim_of
from tests.support.engine import Hand


def intend(hand: Hand, claimed: AttemptInput, on_unknown: str = "ask") -> str:
    """Record that an attempt is about to act, and let its time be over; return the call's id."""
    digest = ids.request_hash({})
    key = ids.idempotency_key(claimed.task.id, claimed.step_id, claimed.attempt, "pay#1", digest)
    intent = Intent(
        call_id=ids.new_id(),
        number=1,
        action="pay#1",
        request={},
        request_hash=digest,
        idempotency_key=key,
        remote_key="r",
        on_unknown=on_unknown,
        send_by=hand.clock.now(),
        expires_at=hand.clock.now(),
    )
    hand.commit(Batch(entries=[JournalEntry(claim_of(claimed), claimed.graph, intent=intent)]))
    return intent.call_id


def lose(hand: Hand) -> None:
    """Declare a worker dead, and recover its steps."""
    owner = hand.committer.worker_id
    with hand.database.connect("writer") as tx:
        with tx.transaction():
            workers.retire(tx, owner, hand.clock.now(), "worker.died")
        rescue_steps.take_over(tx, GraphCache(), hand.clock, [owner], is_process_gone=True)


def rewrite(hand: Hand, task_id: str, column: str, text: str) -> str:
    """Write a column of a task's one step by hand, and return what was there."""
    ((before,),) = hand.rows(f"SELECT {column} FROM steps WHERE task_id = :id", id=task_id)
    with hand.database.connect("writer") as tx, tx.transaction():
        tx.execute(f"UPDATE steps SET {column} = :text WHERE task_id = :id", text=text, id=task_id)
    return str(before)
