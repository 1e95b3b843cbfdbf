"""Secrets given by reference: their values must not be stored."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from pydantic import ValidationError

from agent.core.secret_forms import spellings
from agent.steps.attempt import prepare
from agent.steps.attempt.secrets import Secrets, references, secret_watcher, value_at
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json
from agent.store.db.database import Connection
from agent.store.read.audit import task_reads as audit_reads
from agent.tasks.checker.violation import Violation
from agent.workflows.graph import Graph

_MIN_LENGTH: Final = 8
"""Shorter values also occur in ordinary text."""


def check_secrets(connection: Connection) -> Iterator[Violation]:
    """Search all tables for the values of secrets, in their usual spellings.

    The references are those of the stored definitions and of this process's configuration. Only
    secrets that are set in this process can be searched for.
    """
    for name, value in sorted(_named(connection).items()):
        counts = Counter[tuple[str, str]]()
        for spelling in spellings(value):
            for table, column, count in audit_reads.columns_containing(connection, spelling):
                counts[table, column] = max(counts[table, column], count)
        for (table, column), count in counts.items():
            yield Violation(
                f"the secret {name} is written in {count} rows of {table}, column {column}"
            )


def _named(connection: Connection) -> dict[str, str]:
    """Return the secrets that are named by reference."""
    named: list[Json] = list(secret_watcher.references)
    for text in audit_reads.all_graphs(connection):
        try:
            named += prepare.secret_references(Graph.model_validate_json(text))
        except ValidationError:
            continue
    values: dict[str, str] = {}
    for path in references(named):
        reference = value_at(named, path)
        try:
            value = str(Secrets().resolve(reference, frozenset({()})))
        except DefiniteFailure:
            # It is not set in this process.
            continue
        # `Bearer env:TOKEN` is a word and a secret.
        value = value.rpartition(" ")[2] if " " in reference else value
        if len(value) >= _MIN_LENGTH:
            values[reference.rpartition(" ")[2]] = value
    return values
