"""Completions of steps with `set_state`, made as the runner makes them and committed by hand."""

from typing import Any

from agent.steps.attempt.secrets import Secrets
from agent.steps.attempt.state_change import render_change
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.outcome import Succeeded
from agent.tasks.commit.batch import Batch, CommitResult, Completion
from agent.tasks.worker.state_conflicts import render_again
from tests.support.engine import Hand, settle_of


def completion_of(claimed: AttemptInput, output: Any = None) -> Completion:
    """Return the completion of an attempt that returned this output."""
    change = render_change(claimed, output, Secrets())
    return settle_of(claimed, Succeeded(output, state=change))


def settle_once(hand: Hand, completions: list[Completion]) -> tuple[CommitResult, list[Completion]]:
    """Commit completions; return what was done, and those in conflict, rendered again."""
    done = hand.commit(Batch(completions=completions))
    return done, [*render_again(done.result), *done.result.carried_completions]
