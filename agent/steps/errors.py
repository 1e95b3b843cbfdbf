"""The former address of the two exceptions that step modules raise: write `from agent import …`."""

from agent.steps.types.errors import Applied, DefiniteFailure

__all__ = ["Applied", "DefiniteFailure"]
