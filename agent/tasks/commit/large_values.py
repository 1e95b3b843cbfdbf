"""What of a batch is too large for its rows: outputs, responses and requests that go to artifacts."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.steps.types.outcome import Json, Succeeded
from agent.store.artifacts.artifact_rows import PackedContent
from agent.tasks.commit.batch import Batch, Completion, JournalEntry


@dataclass(frozen=True, slots=True)
class LargePart:
    """A value to be kept apart, and how its place is told where it is kept."""

    content: bytes
    packed: PackedContent | None
    """The content as it was stored outside the database, if it was."""
    replace: Callable[[Json], None]


def large_content(part: Completion | JournalEntry) -> bytes | None:
    """Return what of an outcome or a note is to be kept apart; mostly there is nothing."""
    if isinstance(part, Completion):
        text = part.outcome.large if isinstance(part.outcome, Succeeded) else None
    elif part.result is not None:
        text = part.result.large
    else:
        text = part.intent.large if part.intent is not None else None
    return None if text is None else text.encode()


def large_parts(batch: Batch) -> list[LargePart]:
    """Return what of a batch is to be kept apart; mostly there is nothing."""
    parts = []
    for settle in batch.settles:
        outcome = settle.outcome
        if isinstance(outcome, Succeeded) and outcome.large is not None:
            content = outcome.large.encode()
            parts.append(LargePart(content, settle.packed, _output_of(settle, outcome)))
    for note in batch.notes:
        content_of_note = large_content(note)
        if content_of_note is not None:
            put = _response_of(note) if note.result is not None else _request_of(note)
            parts.append(LargePart(content_of_note, note.packed, put))
    return parts


def _output_of(settle: Completion, outcome: Succeeded) -> Callable[[Json], None]:
    def put(reference: Json) -> None:
        settle.outcome = replace(outcome, output=reference, large=None, text=None)

    return put


def _response_of(note: JournalEntry) -> Callable[[Json], None]:
    def put(reference: Json) -> None:
        assert note.result is not None
        note.result = replace(note.result, response=reference, large=None)

    return put


def _request_of(note: JournalEntry) -> Callable[[Json], None]:
    def put(reference: Json) -> None:
        assert note.intent is not None
        note.intent = replace(note.intent, request=reference, large=None)

    return put
