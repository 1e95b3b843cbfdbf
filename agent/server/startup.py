"""The daemon's startup state, as the server needs it."""

from dataclasses import dataclass

from agent.server.problems import Problem, retry_later


@dataclass(slots=True)
class Startup:
    """Whether startup is complete; the daemon sets it, the server reads it."""

    has_workflows: bool = True
    """False until the workflow files are recorded: an unknown name may still be in a file."""

    started_at: int | None = None

    def not_yet(self, name: str) -> Problem:
        """Return the problem for a workflow that may still be recorded."""
        return retry_later(
            503, "unavailable", f"the workflow files have not been read yet; {name!r} may be there"
        )
