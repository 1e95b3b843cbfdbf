"""Secrets of channels: the configuration refers to them, and they are read when needed."""

from agent.steps.attempt.secrets import Secrets, references
from agent.steps.types.errors import DefiniteFailure


class SecretError(Exception):
    """A secret cannot be read; the message names its reference, never its value."""


def read_secret(reference: str) -> str:
    """Return the secret that `env:NAME` or `file:PATH` refers to."""
    secret_refs = frozenset(references(reference))
    try:
        secret = Secrets().resolve(reference, secret_refs) if secret_refs else ""
    except DefiniteFailure as error:
        raise SecretError(error.error.message) from None
    if not isinstance(secret, str) or not secret.strip():
        raise SecretError(f"{reference} is empty, or not of the form env:NAME or file:PATH")
    return secret.strip()
