"""What of a batch is too large for its rows: outputs, responses and requests that go to artifacts."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.steps.outcome import Json, Succeeded
from agent.tasks.batch import Batch, Note, Settle


@dataclass(frozen=True, slots=True)
class LargePart:
    """A value to be kept apart, and how its place is told where it is kept."""

    content: bytes
    replace: Callable[[Json], None]


def large_parts(batch: Batch) -> list[LargePart]:
    """Return what of a batch is to be kept apart; mostly there is nothing."""
    parts = []
    for settle in batch.settles:
        outcome = settle.outcome
        if isinstance(outcome, Succeeded) and outcome.large is not None:
            parts.append(LargePart(outcome.large.encode(), _output_of(settle, outcome)))
    for note in batch.notes:
        if note.result is not None and note.result.large is not None:
            parts.append(LargePart(note.result.large.encode(), _response_of(note)))
        elif note.intent is not None and note.intent.large is not None:
            parts.append(LargePart(note.intent.large.encode(), _request_of(note)))
    return parts


def _output_of(settle: Settle, outcome: Succeeded) -> Callable[[Json], None]:
    def put(reference: Json) -> None:
        settle.outcome = replace(outcome, output=reference, large=None, text=None)

    return put


def _response_of(note: Note) -> Callable[[Json], None]:
    def put(reference: Json) -> None:
        assert note.result is not None
        note.result = replace(note.result, response=reference, large=None)

    return put


def _request_of(note: Note) -> Callable[[Json], None]:
    def put(reference: Json) -> None:
        assert note.intent is not None
        note.intent = replace(note.intent, request=reference, large=None)

    return put
