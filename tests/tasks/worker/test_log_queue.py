"""Pieces of logs wait for the next commit; only those that people may follow hasten it."""

from agent.steps.attempt import config_record
from agent.tasks.worker.journal import WorkerJournal
from agent.tasks.worker.outbox import Outbox
from tests.support.attempt import Trial


def _journal(outbox: Outbox) -> WorkerJournal:
    return WorkerJournal(outbox, lambda: None, lambda: 7)


def test_a_configuration_makes_no_commit_of_its_own() -> None:
    """A recorded configuration travels with the attempt's own intent or outcome."""
    outbox = Outbox()
    _journal(outbox).log(Trial("python", {}).claimed(), config_record.STREAM, "{}")
    assert outbox.is_empty and not outbox.has_followed_logs
    assert outbox.has_logs, "a shutdown still commits it"
    assert len(outbox.take().logs) == 1


def test_a_line_that_people_may_follow_is_committed_soon() -> None:
    """It hastens the next commit until a batch has taken it; a batch that failed brings it back."""
    outbox = Outbox()
    _journal(outbox).log(Trial("python", {}).claimed(), "stdout", "hello")
    assert outbox.has_followed_logs
    batch = outbox.take()
    assert [outbox.has_followed_logs, outbox.has_logs] == [False, False]
    outbox.requeue(batch)
    assert outbox.has_followed_logs
