"""Secrets of channels: by reference in the configuration, read when they are needed."""

from agent.steps.attempt.secrets import Secrets, references
from agent.steps.types.errors import DefiniteFailure


class SecretError(Exception):
    """A secret cannot be read; the message says where it should be, and not what it is."""


def read_secret(reference: str) -> str:
    """Return what `env:NAME` or `file:PATH` stands for."""
    places = frozenset(references(reference))
    try:
        found = Secrets().resolve(reference, places) if places else ""
    except DefiniteFailure as error:
        raise SecretError(error.error.message) from None
    if not isinstance(found, str) or not found.strip():
        raise SecretError(f"{reference} is empty, or is no reference")
    return found.strip()
