"""What becomes of a poll: baselines, items, batches, cursors, failures and alerts."""

import asyncio
import json
import os
from contextlib import closing
from functools import partial
from socket import gethostname
from typing import Any

import pytest

from agent.core.clock import SECOND
from agent.steps.attempt.services import Limits
from agent.steps.process.processes import start_time
from agent.store.engine import trigger_rows, workers
from agent.tasks.rules.firings.trigger_update import FireResult, TriggerUpdate
from agent.triggers import watch_runner
from agent.triggers.watch_runner import WatchRunner
from agent.triggers.watchers.source import Item, Poll, SourceError
from tests.support.trigger_bench import BEGIN, TriggerBench

DAY = 86_400.0


class Source:
    """A source that shows what the test says, and keeps the cursors that it was given."""

    def __init__(self) -> None:
        self.next: Poll | Exception = Poll()
        self.cursors: list[Any] = []

    async def poll(self, cursor: Any, _context: object) -> Poll:
        """Return or raise what comes next."""
        self.cursors.append(cursor)
        if isinstance(self.next, Exception):
            raise self.next
        return self.next


class Watching:
    """One watcher of a bench, polled by hand."""

    def __init__(self, bench: TriggerBench, source: Source) -> None:
        self.bench = bench
        self.source = source

    def define(self, **options: Any) -> None:
        """Define the watcher."""
        spec = {"id": "it", "python": {"call": "x:y"}, "every_seconds": 60.0, **options}
        self.bench.define(watch=(spec,))

    def poll(self, *keys: str, cursor: Any = None, **options: Any) -> None:
        """Poll, and let the source show items with these keys."""
        items = [Item(key, {"name": key}) for key in keys]
        self.source.next = Poll(items, cursor, **options)
        self.run()

    def fail(self, message: str = "no route", retry_seconds: float | None = None) -> None:
        """Poll, and let that fail."""
        self.source.next = SourceError(message, retry_seconds=retry_seconds)
        self.run()

    def run(self) -> None:
        """Poll if the time has come, as a daemon does."""

        async def fire(update: TriggerUpdate) -> FireResult:
            return self.bench.fire(update)

        async def run() -> None:
            runner = WatchRunner(self.bench.database, self.bench.still, Limits(), fire)
            await runner.run_due()
            await runner.aclose()

        asyncio.run(run())

    @property
    def cursor(self) -> Any:
        """The stored cursor."""
        text = trigger_rows.cursor_of(self.bench._connection, "tested:it")
        return None if text is None else json.loads(text)

    @property
    def wait_seconds(self) -> float:
        """How long the next poll is away."""
        next_at = self.bench.row.next_at
        assert next_at is not None
        return (next_at - self.bench.now) / SECOND

    def items(self) -> list[str]:
        """Return the items that tasks were started for, in order."""
        found = [self.bench.trigger_of(task) for task in self.bench.task_ids()]
        return [each["item"]["name"] for each in found]


@pytest.fixture
def watching(bench: TriggerBench, monkeypatch: pytest.MonkeyPatch) -> Watching:
    """Return a watcher that is not defined yet."""
    source = Source()
    monkeypatch.setattr(watch_runner, "source_of", lambda _: source)
    return Watching(bench, source)


def test_a_baseline_starts_nothing(watching: Watching) -> None:
    """What the first poll shows is seen; what comes later starts one task each."""
    watching.define(most=1)
    watching.poll("a", "b", "c", cursor=1)
    bench = watching.bench
    assert bench.statuses_by_key() == dict.fromkeys("abc", "baseline")
    assert bench.task_ids() == []
    bench.at(60)
    watching.poll("a", "b", "c", "d", cursor=2)
    assert watching.items() == ["d"]
    assert watching.source.cursors == [None, 1]
    assert watching.cursor == 2
    bench.at(120)
    watching.poll("a", "b", "c", "d", cursor=3)
    assert watching.items() == ["d"]


def test_what_is_passed_over_is_reported_once(watching: Watching) -> None:
    """The operator is notified when it changes; lists show it until everything can be read."""
    watching.define()
    bench = watching.bench
    for second, bad in enumerate(("x", "x", "y", None)):
        bench.at(second * 60)
        watching.poll("a", passed_over=bad)
        expected = bad and f"it works, but passed over what it cannot read: {bad}"
        assert (bench.row.last_error, bench.row.failures) == (expected, 0)
    assert bench.event_types().count("watcher.failed") == 2


def test_what_is_passed_over_is_known_while_nothing_changes(watching: Watching) -> None:
    """An answer that says that nothing has changed does not make a bad part good."""
    watching.define()
    watching.poll("a", passed_over="x")
    watching.bench.at(60)
    watching.poll(is_unchanged=True)
    assert "x" in (watching.bench.row.last_error or "")


def test_the_latest_of_the_first_poll(watching: Watching) -> None:
    """With `first: latest` the newest item starts, the others are seen."""
    watching.define(first="latest")
    watching.poll("a", "b", "c")
    assert watching.bench.statuses_by_key() == {"a": "baseline", "b": "baseline", "c": "started"}


def test_all_of_the_first_poll(watching: Watching) -> None:
    """With `first: all` every item starts."""
    watching.define(first="all")
    watching.poll("a", "b")
    assert watching.items() == ["a", "b"]


def test_a_first_poll_without_items_is_a_baseline_too(watching: Watching) -> None:
    """The first item that comes after it starts."""
    watching.define()
    watching.poll()
    watching.bench.at(60)
    watching.poll("a")
    assert watching.items() == ["a"]


def test_an_error_never_moves_the_cursor(watching: Watching) -> None:
    """A failed poll leaves cursor and count of polls; the baseline is still to come after it."""
    watching.define()
    watching.fail()
    bench = watching.bench
    assert (watching.cursor, bench.row.polls, bench.row.failures) == (None, 0, 1)
    bench.at(100)
    watching.poll("a", cursor=5)
    assert bench.statuses_by_key() == {"a": "baseline"}
    assert (bench.row.failures, bench.row.last_error) == (0, None)
    bench.at(200)
    watching.fail("away")
    assert (watching.cursor, bench.row.polls, bench.row.last_error) == (5, 1, "away")
    bench.at(400)
    watching.poll("b", cursor=6)
    assert watching.source.cursors == [None, None, 5, 5]
    assert watching.items() == ["b"]


def test_an_unexpected_error_counts_as_a_failed_poll(watching: Watching) -> None:
    """A defect of a source leaves the cursor as well."""
    watching.define()
    watching.poll(cursor=1)
    watching.bench.at(60)
    watching.source.next = ZeroDivisionError("oops")
    watching.run()
    assert watching.cursor == 1
    assert watching.bench.row.last_error == "ZeroDivisionError: oops"


def test_items_beyond_the_most_are_queued(watching: Watching) -> None:
    """Each poll's time starts `most` more of them; none is lost, none starts twice."""
    watching.define(first="all", most=2)
    watching.poll("a", "b", "c", "d", "e")
    bench = watching.bench
    assert watching.items() == ["a", "b"]
    assert [each["status"] for each in bench.firings()].count("queued") == 3
    for second, expected in ((60, "abcd"), (120, "abcde"), (180, "abcde")):
        bench.at(second)
        watching.poll("a", "b", "c", "d", "e")
        bench.run_pass()
        assert watching.items() == list(expected)


def test_a_batch_is_one_task(watching: Watching) -> None:
    """With `per: batch` one task has all new items, and each of them has its row."""
    watching.define(first="all", per="batch")
    watching.poll("a", "b")
    bench = watching.bench
    (task_id,) = bench.task_ids()
    assert bench.trigger_of(task_id)["items"] == [{"name": "a"}, {"name": "b"}]
    assert {each["task_id"] for each in bench.firings()} == {task_id}
    bench.at(60)
    watching.poll("a", "b", "c")
    assert len(bench.task_ids()) == 2


def test_an_item_twice_in_one_poll_is_one_item(watching: Watching) -> None:
    """The keys decide."""
    watching.define(first="all")
    watching.poll("a", "a")
    assert watching.items() == ["a"]


def test_a_new_baseline_starts_nothing(watching: Watching) -> None:
    """If a source says that all begins again, all it shows is seen, and the operator hears it."""
    watching.define()
    watching.poll()
    watching.bench.at(60)
    watching.poll("a", "b", new_baseline="UIDVALIDITY changed")
    assert watching.bench.statuses_by_key() == {"a": "baseline", "b": "baseline"}
    assert watching.bench.event_types()[-1] == "watcher.reset"
    watching.bench.at(120)
    watching.poll("a", "b", "c")
    assert watching.items() == ["c"]


def test_items_after_a_pause_are_skipped_once(watching: Watching) -> None:
    """The first poll after the resumption skips what came meanwhile; later items start."""
    watching.define()
    watching.poll()
    bench = watching.bench
    until = BEGIN + 100 * SECOND
    bench.change(status="paused", pause_reason="x", paused_until=until, next_at=until)
    bench.at(60)
    watching.poll("a")
    assert bench.firings() == []
    bench.at(100)
    watching.poll("a")
    assert (bench.row.status, bench.statuses_by_key()) == ("active", {"a": "skipped"})
    assert bench.reason("a") == "paused"
    bench.at(200)
    watching.poll("a", "b")
    assert watching.items() == ["b"]


def test_the_next_poll_comes_after_every_or_sooner(watching: Watching) -> None:
    """A source may ask for an earlier poll, never for a later one."""
    watching.define()
    watching.poll()
    assert watching.wait_seconds == 60
    watching.bench.at(60)
    watching.poll(next_seconds=5.0)
    assert watching.wait_seconds == 5
    watching.bench.at(70)
    watching.poll(next_seconds=500.0)
    assert watching.wait_seconds == 60


def test_failures_back_off(watching: Watching) -> None:
    """The wait doubles with every failure up to an hour; what the source asks for counts, up to a day."""
    watching.define()
    second, waits = 0.0, []
    for _ in range(9):
        watching.bench.at(second)
        watching.fail()
        waits.append(watching.wait_seconds)
        second += waits[-1]
    for number, wait in enumerate(waits):
        expected = min(60 * 2**number, 3600)
        assert expected <= wait <= 1.1 * expected
    watching.bench.at(second)
    watching.fail(retry_seconds=7200.0)
    assert watching.wait_seconds == 7200
    watching.bench.at(second + 7200)
    watching.fail(retry_seconds=30 * DAY)
    assert watching.wait_seconds == DAY


def test_a_rare_poll_that_fails_is_repeated_soon(watching: Watching) -> None:
    """The third failure of a daily watcher is reported within the hour, not after three days."""
    watching.define(every_seconds=DAY)
    second, waits = 0.0, []
    for _ in range(9):
        watching.bench.at(second)
        watching.fail()
        waits.append(watching.wait_seconds)
        second += waits[-1]
    for number, wait in enumerate(waits):
        expected = min(900 * 2**number, DAY)
        assert expected <= wait <= 1.1 * expected
    watching.bench.at(second)
    watching.poll("a")
    assert watching.wait_seconds == DAY


def test_three_failures_notify_once_and_recovery_too(watching: Watching) -> None:
    """The third failure in a row is reported, a fourth is not; the next success is."""
    watching.define()
    bench, second = watching.bench, 0.0
    for _ in range(4):
        bench.at(second)
        watching.fail()
        second += watching.wait_seconds
    assert bench.event_types()[1:] == ["watcher.failed"]
    bench.at(second)
    watching.poll("a")
    assert bench.event_types()[1:] == ["watcher.failed", "watcher.recovered"]
    assert bench.row.alert is None


def test_a_silent_watcher_is_reported_once(watching: Watching) -> None:
    """Nothing new for longer than `expect_every` is reported once, and the next item ends it."""
    watching.define(expect_every_seconds=100.0)
    bench = watching.bench
    for second in (0, 60, 120, 180, 240):
        bench.at(second)
        watching.poll("a")
    assert bench.event_types()[1:] == ["watcher.silent"]
    bench.at(300)
    watching.poll("a", "b")
    assert bench.event_types()[1:] == ["watcher.silent", "watcher.recovered"]
    bench.at(420)
    watching.poll("a", "b")
    assert bench.event_types()[-1] == "watcher.silent"


def test_a_clock_that_ran_ahead_silences_no_watcher(watching: Watching) -> None:
    """Set right again, the next poll is due at once; a wait that a source asked for is kept."""
    watching.define()
    bench = watching.bench
    bench.at(365 * DAY)
    watching.poll(cursor=1)
    bench.at(10)
    assert bench.correct() == 1
    watching.poll("a", cursor=2)
    assert watching.items() == ["a"]
    assert bench.correct() == 0
    bench.at(80)
    watching.fail(retry_seconds=7200.0)
    assert bench.correct() == 0


def test_what_a_clock_that_ran_ahead_has_queued_starts(watching: Watching) -> None:
    """Items beyond the most of a poll do not wait for the time that the clock showed."""
    watching.define(first="all", most=1)
    bench = watching.bench
    bench.at(365 * DAY)
    watching.poll("a", "b")
    assert watching.items() == ["a"]
    bench.at(10)
    bench.run_pass()
    assert watching.items() == ["a", "b"]


def test_a_lease_is_taken_once_and_ends(watching: Watching) -> None:
    """Another daemon polls when the lease is over, or is longer than a lease can be."""
    watching.define()
    row, now = watching.bench.row, watching.bench.now
    database = watching.bench.database

    def lease(owner: str, at: float) -> bool:
        instant = now + int(at * SECOND)
        with database.connect("writer") as tx, tx.transaction():
            return trigger_rows.lease(
                tx, row.id, row.version, owner, instant, instant + 90 * SECOND
            )

    assert lease("first", 0)
    assert not lease("second", 1)
    assert lease("first", 1)
    assert lease("second", 92)
    assert not lease("first", 93)
    assert lease("second", 365 * DAY)
    assert lease("first", 100)


@pytest.mark.parametrize("how", ["dead", "gone"])
def test_the_lease_of_an_agent_that_has_ended_is_free(watching: Watching, how: str) -> None:
    """Others poll at once what a dead worker polled; what a living one polls they look at again soon."""
    watching.define()
    bench = watching.bench
    if bench.database.is_sqlite:
        pytest.skip("one agent has the database for itself")
    started = start_time(os.getpid()) or ""
    with bench.database.connect("writer") as tx, tx.transaction():
        for worker_id in ("first", "second"):
            workers.enroll(tx, worker_id, gethostname(), os.getpid(), started, bench.now)

    async def fire(update: TriggerUpdate) -> FireResult:
        return bench.fire(update)

    runners = [
        WatchRunner(bench.database, bench.still, Limits(), fire, worker_id=partial(str, name))
        for name in ("first", "second")
    ]
    with closing(runners[0].reader), closing(runners[1].reader):
        (row,) = runners[0]._due(bench.now, 1)
        assert runners[1]._due(bench.now, 1) == []
        assert runners[1].next_time() == bench.now + 2 * SECOND
        with bench.database.connect("writer") as tx, tx.transaction():
            if how == "dead":
                workers.retire(tx, "first", bench.now, "worker.died")
            else:
                tx.execute("UPDATE workers SET process_started = 'before' WHERE id = 'first'")
        (found,) = runners[1]._due(bench.now, 1)
        assert (found.id, found.owner) == (row.id, "first")
        assert bench.row.owner == "second"


def test_of_two_polls_from_one_row_the_later_is_discarded(watching: Watching) -> None:
    """Two daemons polled at the same time: one cursor and one task per item, from the first one."""
    watching.define(first="all")
    bench = watching.bench

    async def run() -> list[FireResult]:
        async def fire(update: TriggerUpdate) -> FireResult:
            return bench.fire(update)

        row = bench.row
        runners = [WatchRunner(bench.database, bench.still, Limits(), fire) for _ in range(2)]
        watching.source.next = Poll([Item("a", {"name": "a"})], 1)
        first = await runners[0]._planned(row)
        watching.source.next = Poll([Item("a", {"name": "a"}), Item("b", {"name": "b"})], 2)
        second = await runners[1]._planned(row)
        for runner in runners:
            await runner.aclose()
        return [await fire(update) for update in (first, second)]

    assert [result.status for result in asyncio.run(run())] == ["applied", "stale"]
    assert (watching.items(), watching.cursor) == (["a"], 1)
    # What the loser saw is found by the next poll.
    bench.at(60)
    watching.poll("a", "b", cursor=3)
    assert watching.items() == ["a", "b"]


def test_an_unusable_poll_counts_as_a_failure(watching: Watching) -> None:
    """An item without a key or of too many bytes leaves nothing of the poll on record."""
    watching.define(first="all")
    watching.source.next = Poll([Item("a", {}), Item("", {})], 1)
    watching.run()
    bench = watching.bench
    assert (bench.firings(), watching.cursor, bench.row.failures) == ([], None, 1)
    bench.at(200)
    watching.source.next = Poll([Item("a", {"text": "x" * 300_000})], 1)
    watching.run()
    assert (bench.firings(), watching.cursor, bench.row.failures) == ([], None, 2)


def test_inputs_that_are_refused_skip_the_item(watching: Watching) -> None:
    """The item is skipped with the reason, and the cursor moves on."""
    watching.define(first="all", inputs={"x": "{{ trigger.item.nothing.there }}"})
    watching.poll("a", cursor=1)
    assert watching.bench.statuses_by_key() == {"a": "skipped"}
    assert "its inputs" in watching.bench.reason("a")
    assert watching.cursor == 1
