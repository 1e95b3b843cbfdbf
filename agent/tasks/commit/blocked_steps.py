"""Claimed steps whose inputs must be downloaded from a store outside the database."""

from collections.abc import Collection
from dataclasses import dataclass

from agent.store.artifacts.artifact_rows import FetchedValues
from agent.tasks.rules.settlement import Claim, claim_on
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow


@dataclass(frozen=True, slots=True, eq=False)
class BlockedStep:
    """A claimed step whose attempt cannot start before a download."""

    locked: LockedTask
    step: StepRow
    is_isolated: bool
    missing: frozenset[str]
    """The addresses of the values that it needs."""

    @property
    def claim(self) -> Claim:
        """The claim under which it waits."""
        return claim_on(self.step)


class BlockedSteps:
    """The blocked steps of one worker, and the values that were downloaded for them.

    The database thread changes it; the worker's loop reads `steps`, which is replaced as a whole.
    """

    def __init__(self) -> None:
        self.steps: tuple[BlockedStep, ...] = ()
        self.fetched = FetchedValues()

    @property
    def wanted(self) -> set[str]:
        """The addresses that are still to be downloaded."""
        contents = self.fetched.contents
        return {address for address in self._needed if address not in contents}

    @property
    def _needed(self) -> set[str]:
        """The addresses of all that the steps need, downloaded or not."""
        return {address for blocked in self.steps for address in blocked.missing}

    def add(self, locked: LockedTask, step: StepRow, *, is_isolated: bool) -> None:
        """Block a step on the values that were missing when its inputs were loaded last."""
        blocked = BlockedStep(locked, step, is_isolated, frozenset(self.fetched.missing))
        self.steps = (*self.steps, blocked)

    def supply(self, address: str, content: bytes | None) -> list[BlockedStep]:
        """Add a downloaded value; remove and return the steps that are complete with it."""
        contents = self.fetched.contents
        contents[address] = content
        return self._remove(
            [blocked for blocked in self.steps if blocked.missing <= contents.keys()]
        )

    def abandon(self, step_ids: Collection[str]) -> list[BlockedStep]:
        """Remove and return steps whose claims are gone, or that must stop."""
        return self._remove([blocked for blocked in self.steps if blocked.step.id in step_ids])

    def tidy(self) -> None:
        """Drop the downloaded values of attempts that have started."""
        if self.fetched.contents:
            needed = self._needed
            contents = self.fetched.contents.items()
            self.fetched.contents = {name: value for name, value in contents if name in needed}

    def clear(self) -> None:
        """Drop everything: the claims belong to another worker."""
        self.steps, self.fetched = (), FetchedValues()

    def _remove(self, removed: list[BlockedStep]) -> list[BlockedStep]:
        self.steps = tuple(blocked for blocked in self.steps if blocked not in removed)
        return removed
