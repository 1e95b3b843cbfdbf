"""Secrets given by reference: nothing that is stored may show them."""

from collections.abc import Iterator
from typing import Final

from pydantic import ValidationError

from agent.steps import preparation
from agent.steps.errors import DefiniteFailure
from agent.steps.outcome import Json
from agent.steps.secrets import Secrets
from agent.store import evidence
from agent.store.database import Connection
from agent.tasks.checker.violation import Violation
from agent.workflows.graph import Graph

_MIN_LENGTH: Final = 8
"""Shorter values are found in ordinary text as well."""


def secrets(connection: Connection) -> Iterator[Violation]:
    """Look for the values of all references that definitions make, as far as they are set here."""
    for name, value in sorted(_named(connection).items()):
        for table, column, count in evidence.mentions(connection, value):
            yield Violation(
                f"the secret {name} is written in {count} rows of {table}, column {column}"
            )


def _named(connection: Connection) -> dict[str, str]:
    """Return the secrets that definitions name, by their references."""
    found: dict[str, str] = {}
    for text in evidence.graphs(connection):
        try:
            graph = Graph.model_validate_json(text)
        except ValidationError:
            continue
        for step in graph.steps:
            try:
                places = preparation.plan_of(step).secret_places
            except DefiniteFailure:
                continue
            for place in places:
                reference = str(_at(step.config, place))
                try:
                    value = str(Secrets().resolve(reference, frozenset({()})))
                except DefiniteFailure:
                    # Not set here: then it cannot be looked for from here.
                    continue
                # `Bearer env:TOKEN` is a word and a secret.
                value = value.rpartition(" ")[2] if " " in reference else value
                if len(value) >= _MIN_LENGTH:
                    found[reference.rpartition(" ")[2]] = value
    return found


def _at(value: Json, place: tuple[str | int, ...]) -> Json:
    for key in place:
        value = value[key]
    return value
