"""The values of a batch that are too large for their rows: they are stored as artifacts first."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.steps.types.outcome import Json, Succeeded, Waiting, WorkOffer
from agent.store.artifacts.artifact_rows import PackedContent
from agent.tasks.commit.batch import Batch, Completion, JournalEntry


@dataclass(frozen=True, slots=True)
class LargeValue:
    """A value to store as an artifact, and how a reference takes its place."""

    content: bytes
    packed: PackedContent | None
    """The content as it was stored outside the database, if it was."""
    replace: Callable[[Json], None]


def large_content(part: Completion | JournalEntry) -> bytes | None:
    """Return the large value of a completion or an entry; most have none."""
    if isinstance(part, Completion):
        outcome = part.outcome
        text = outcome.large if isinstance(outcome, Succeeded) else None
        if isinstance(outcome, Waiting) and isinstance(outcome.on, WorkOffer):
            text = outcome.on.large
    elif part.result is not None:
        text = part.result.large
    else:
        text = part.intent.large if part.intent is not None else None
    return None if text is None else text.encode()


def large_parts(batch: Batch) -> list[LargeValue]:
    """Return the large values of a batch; most have none."""
    parts = []
    for completion in batch.completions:
        outcome = completion.outcome
        if isinstance(outcome, Succeeded) and outcome.large is not None:
            put_output = _output_of(completion, outcome)
            parts.append(LargeValue(outcome.large.encode(), completion.packed, put_output))
        elif isinstance(outcome, Waiting) and isinstance(outcome.on, WorkOffer):
            offered = outcome.on
            if offered.large is not None:
                put_input = _input_of(completion, outcome, offered)
                parts.append(LargeValue(offered.large.encode(), completion.packed, put_input))
    for entry in batch.entries:
        content = large_content(entry)
        if content is not None:
            put = _response_of(entry) if entry.result is not None else _request_of(entry)
            parts.append(LargeValue(content, entry.packed, put))
    return parts


def _output_of(completion: Completion, outcome: Succeeded) -> Callable[[Json], None]:
    def put(reference: Json) -> None:
        completion.outcome = replace(outcome, output=reference, large=None, text=None)

    return put


def _input_of(
    completion: Completion, outcome: Waiting, offered: WorkOffer
) -> Callable[[Json], None]:
    def put(reference: Json) -> None:
        text = json.dumps(reference)
        completion.outcome = replace(outcome, on=replace(offered, input_text=text, large=None))

    return put


def _response_of(entry: JournalEntry) -> Callable[[Json], None]:
    def put(reference: Json) -> None:
        assert entry.result is not None
        entry.result = replace(entry.result, response=reference, large=None)

    return put


def _request_of(entry: JournalEntry) -> Callable[[Json], None]:
    def put(reference: Json) -> None:
        assert entry.intent is not None
        entry.intent = replace(entry.intent, request=reference, large=None)

    return put
