"""Acts on the result of a commit or a poll: start, answer, stop, notify."""

from typing import TYPE_CHECKING

from agent.tasks.commit.batch import CommitResult, TxResult
from agent.tasks.commit.committer import PollResult
from agent.tasks.rescue import peer_takeover
from agent.tasks.rules.firings.trigger_update import TriggerUpdate

if TYPE_CHECKING:
    from agent.tasks.worker.worker import Worker


def act_on(worker: "Worker", committed: CommitResult) -> None:
    """Act on a committed transaction."""
    result = committed.result
    _answer_waiting(worker, committed)
    worker.attempts_started += len(committed.attempts)
    for attempt_input in committed.attempts:
        worker.attempts.start(attempt_input, is_isolated=committed.is_isolated)
    worker.external.note_commit(committed)
    if result.conflicts:
        worker.state_conflicts.resolve(result)
    for step_id, _ in result.stops:
        worker.attempts.stop(step_id, "another step failed")
    if result.worked or result.queued:
        worker.external_workers.note_commit(result)
    worker.slots.note_commit(result)
    if result.has_more:
        worker.on_other_commit()
    if result.ended or result.orphans or result.pauses:
        _follow_tasks(worker, result)
    if result.fired or result.ended_triggers:
        _follow_triggers(worker, result)
    if result.events:
        worker.call_listeners(result.events)


def _answer_waiting(worker: "Worker", committed: CommitResult) -> None:
    """Free the slots of completed attempts, and answer journal entries and submitters."""
    for entry, is_recorded in committed.result.journaled:
        worker.journal.answer(entry, is_recorded)
    for completion, _ in committed.result.settled:
        attempt = worker.attempts.remove(completion.claim)
        if attempt is not None:
            worker.slots.note_end(attempt)
    worker.submitters.resolve(committed.result.created, committed.refused)


def _follow_tasks(worker: "Worker", result: TxResult) -> None:
    """Start the follow-up on other tasks: parents, abandoned children, paused families."""
    for end in result.ended:
        if end.parent_step_id is not None:
            worker.outbox.add_child_end(end)
            worker.wake()
    for task_id in result.orphans:
        peer_takeover.cancel_soon(worker.committer, task_id, worker.on_other_commit)
    for pause in result.pauses:
        peer_takeover.pause_soon(worker.committer, pause, worker.on_other_commit)


def _follow_triggers(worker: "Worker", result: TxResult) -> None:
    """Answer the plans for triggers, cancel superseded tasks, and start queued runs."""
    worker.firings.resolve(result.fired)
    for _, fired in result.fired:
        for task_id in fired.superseded:
            peer_takeover.cancel_superseded(worker.committer, task_id, worker.on_other_commit)
    for trigger_id in dict.fromkeys(result.ended_triggers):
        worker.outbox.add_trigger_update(TriggerUpdate(trigger_id))
        worker.wake()


async def signal_attempts(worker: "Worker", poll: PollResult) -> None:
    """Stop or pause attempts as a poll demands."""
    attempts = worker.attempts
    for step_id, reason in poll.lost_claims.items():
        attempts.stop(step_id, reason)
    for step_id in poll.paused_steps:
        attempts.pause(step_id)
    attempts.unpause(set(poll.paused_steps))
    for attempt in attempts:
        if (
            attempt.claim.step_id in poll.failing_steps
            and attempt.attempt_input.step.run_on == "success"
        ):
            attempts.stop(attempt.claim.step_id, "another step failed")
    if await worker.external.note_poll(poll):
        worker.slots.note_isolated_end()
