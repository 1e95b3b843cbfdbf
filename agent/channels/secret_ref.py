"""Secrets of channels: the configuration refers to them, and they are read when needed."""

from agent.core.secret_reference import FORMS
from agent.steps.attempt.secrets import Secrets, references
from agent.steps.types.errors import DefiniteFailure


class SecretError(Exception):
    """A secret cannot be read; the message names its reference, never its value."""


def read_secret(reference: str) -> str:
    """Return the secret of a reference; one that takes long blocks, unless `prefetch_secrets` read it."""
    secret_refs = frozenset(references(reference))
    try:
        secret = Secrets().resolve(reference, secret_refs) if secret_refs else ""
    except DefiniteFailure as error:
        raise SecretError(error.error.message) from None
    if not isinstance(secret, str) or not secret.strip():
        raise SecretError(f"{reference} is empty, or not of the form {FORMS}")
    return secret.strip()


async def prefetch_secrets(*secret_refs: str) -> None:
    """Read the secrets that take long, so that `read_secret` finds them without blocking the loop."""
    values = list(secret_refs)
    await Secrets().prefetch(values, frozenset(references(values)))
