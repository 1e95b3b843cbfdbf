"""The queue of parts for the next commits, in order; a batch takes a bounded part of it."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from agent.tasks.commit.batch import Batch, Completion, JournalEntry, TxResult
from agent.tasks.rules.child_tasks import ChildEnd
from agent.tasks.rules.creation import Submission
from agent.tasks.rules.external_work.work_parts import WorkPart
from agent.tasks.rules.firings.trigger_update import TriggerUpdate
from agent.tasks.rules.settlement import Claim

T = TypeVar("T")

MAX_PARTS: Final = 256
"""The most entries, completions, submissions or child ends of one batch, each counted by itself."""
MAX_BYTES: Final = 4_000_000
MAX_NEW_STEPS: Final = 500
SPLIT_AT: Final = 24
"""From this many completions or submissions on, half of them go in a batch of their own."""
MAX_UPDATES: Final = 64
"""The most plans for triggers of one batch."""
MAX_LOGS: Final = 1000
TRIES_BEFORE_WAITING: Final = 8
"""After this many tries a batch of its own waits for the lock of the task."""
TRIES_AFTER_WAITING: Final = -4 * TRIES_BEFORE_WAITING
"""After a wait without success, other tasks go first for a while."""


class Outbox:
    """The queues that attempts and submitters fill and batches empty."""

    def __init__(self) -> None:
        self._completions: deque[tuple[Completion, int]] = deque()
        self._entries: deque[JournalEntry] = deque()
        self._logs: deque[Sequence[Any]] = deque()
        self._has_followed_logs = False
        self._submissions: deque[Submission] = deque()
        self._child_ends: deque[ChildEnd] = deque()
        self._trigger_updates: deque[TriggerUpdate] = deque()
        self._work: deque[WorkPart] = deque()
        self._withdrawn: set[str] = set()
        """Submissions that a batch held when their submitters gave up."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing needs a commit; logs alone wait for the next one."""
        return not (
            self._completions
            or self._entries
            or self._submissions
            or self._child_ends
            or self._trigger_updates
            or self._work
        )

    @property
    def has_logs(self) -> bool:
        """Whether pieces of logs are waiting."""
        return bool(self._logs)

    @property
    def has_followed_logs(self) -> bool:
        """Whether pieces of logs are waiting that people may be following."""
        return self._has_followed_logs

    def add_completion(self, completion: Completion, size: int = 0) -> None:
        """Queue a completion; `size` is about how many bytes it writes."""
        self._completions.append((completion, size))

    def add_entry(self, entry: JournalEntry) -> None:
        """Queue a record of a running attempt."""
        self._entries.append(entry)

    def add_log(self, row: Sequence[Any], *, can_wait: bool = False) -> None:
        """Queue a piece of a log; with `can_wait` it makes no commit of its own."""
        self._logs.append(row)
        if not can_wait:
            self._has_followed_logs = True

    async def keep(self, _claim: Claim, _text: str) -> str | None:
        """Store nothing yet: the commit puts large values into the database itself."""
        return None

    def add_submission(self, submission: Submission) -> None:
        """Queue a task to be created."""
        self._submissions.append(submission)

    def withdraw(self, submission: Submission) -> None:
        """Do not create a task whose submitter has given up, unless its batch is under way."""
        try:
            self._submissions.remove(submission)
        except ValueError:
            self._withdrawn.add(submission.task_id)

    def add_child_end(self, end: ChildEnd) -> None:
        """Queue the end of a child task for its parent."""
        self._child_ends.append(end)

    def add_trigger_update(self, update: TriggerUpdate) -> None:
        """Queue a plan for a trigger."""
        self._trigger_updates.append(update)

    def add_work(self, part: WorkPart) -> None:
        """Queue a call of an external worker."""
        self._work.append(part)

    def take(self, *, is_half: bool = False) -> Batch:
        """Return the next batch: bounded, and empty only if nothing is queued.

        With `is_half` much work makes two batches: one is computed while the other is written.

        Entries go before completions: a call is resolved before or with the end of its attempt.
        """
        contended = self._contended_task()
        if contended is not None:
            return self._take_of(contended)
        batch = Batch()
        size = 0
        while self._entries and len(batch.entries) < MAX_PARTS:
            batch.entries.append(self._entries.popleft())
        most = _portion(len(self._completions), is_half=is_half)
        if not self._entries:
            while self._completions and len(batch.completions) < most and size < MAX_BYTES:
                completion, completion_size = self._completions.popleft()
                batch.completions.append(completion)
                size += completion_size
        steps = 0
        most = _portion(len(self._submissions), is_half=is_half)
        while self._submissions and steps < MAX_NEW_STEPS and len(batch.submissions) < most:
            submission = self._submissions.popleft()
            batch.submissions.append(submission)
            steps += len(submission.graph.steps)
        while self._child_ends and len(batch.child_ends) < MAX_PARTS:
            batch.child_ends.append(self._child_ends.popleft())
        while self._trigger_updates and len(batch.trigger_updates) < MAX_UPDATES:
            batch.trigger_updates.append(self._trigger_updates.popleft())
        while self._work and len(batch.work) < MAX_PARTS:
            batch.work.append(self._work.popleft())
        while self._logs and len(batch.logs) < MAX_LOGS:
            batch.logs.append(self._logs.popleft())
        self._has_followed_logs = bool(self._logs)
        return batch

    def _contended_task(self) -> str | None:
        """Return the task whose lock was missed too often, if there is one.

        What was carried is first in its queue.
        """
        if self._entries and self._entries[0].tries >= TRIES_BEFORE_WAITING:
            return self._entries[0].claim.task_id
        if self._completions and self._completions[0][0].tries >= TRIES_BEFORE_WAITING:
            return self._completions[0][0].claim.task_id
        return None

    def _take_of(self, task_id: str) -> Batch:
        """Return a batch for one task, which waits for the lock."""
        batch = Batch(must_wait=True)
        batch.entries, self._entries = _partition(
            self._entries, lambda entry: entry.claim.task_id == task_id
        )
        if len(batch.entries) < MAX_PARTS:
            taken, self._completions = _partition(
                self._completions, lambda pair: pair[0].claim.task_id == task_id
            )
            batch.completions = [completion for completion, _ in taken]
        return batch

    def requeue(self, batch: Batch) -> None:
        """Queue a batch again, before everything else: it was not committed."""
        if batch.must_wait:
            waited: list[JournalEntry | Completion] = [*batch.entries, *batch.completions]
            for part in waited:
                part.tries = TRIES_AFTER_WAITING
        self._entries.extendleft(reversed(batch.entries))
        self._completions.extendleft((completion, 0) for completion in reversed(batch.completions))
        self._submissions.extendleft(
            submission
            for submission in reversed(batch.submissions)
            if submission.task_id not in self._withdrawn
        )
        self._withdrawn.difference_update(submission.task_id for submission in batch.submissions)
        self._child_ends.extendleft(reversed(batch.child_ends))
        self._trigger_updates.extendleft(reversed(batch.trigger_updates))
        self._work.extendleft(reversed(batch.work))
        self._logs.extendleft(reversed(batch.logs))
        self._has_followed_logs = bool(self._logs)

    def carry(self, result: TxResult) -> bool:
        """Queue again the parts that a transaction could not lock; return whether there were any."""
        if self._withdrawn:
            self._withdrawn.difference_update(result.created)
        self._entries.extendleft(reversed(result.carried_entries))
        self._completions.extendleft(
            (completion, 0) for completion in reversed(result.carried_completions)
        )
        self._child_ends.extendleft(reversed(result.carried_ends))
        self._trigger_updates.extendleft(reversed(result.carried_updates))
        self._work.extendleft(reversed(result.carried_work))
        return bool(
            result.carried_entries
            or result.carried_completions
            or result.carried_ends
            or result.carried_updates
            or result.carried_work
        )

    def withdraw_work(self, part: WorkPart) -> bool:
        """Drop a call whose caller has given up; return False if its batch is under way."""
        try:
            self._work.remove(part)
        except ValueError:
            return False
        return True

    def take_all_entries(self) -> list[JournalEntry]:
        """Remove and return every entry that is in no batch."""
        entries, self._entries = list(self._entries), deque()
        return entries


def _portion(count: int, *, is_half: bool) -> int:
    """Return how many of a queue go into one batch."""
    return min(-(-count // 2) if is_half and count >= SPLIT_AT else count, MAX_PARTS)


def _partition(queue: deque[T], is_wanted: Callable[[T], bool]) -> tuple[list[T], deque[T]]:
    """Return the wanted parts of a queue, bounded by a batch, and the rest."""
    taken: list[T] = []
    rest: deque[T] = deque()
    for part in queue:
        if len(taken) < MAX_PARTS and is_wanted(part):
            taken.append(part)
        else:
            rest.append(part)
    return taken, rest
