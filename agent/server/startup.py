"""What the daemon tells the server of its own start."""

from dataclasses import dataclass

from agent.server.problems import Problem, retry_later


@dataclass(slots=True)
class Startup:
    """Whether everything is there that requests ask for; the daemon sets it, the server reads it."""

    has_workflows: bool = True
    """False until the workflow files are on record: a name that is not known may be in a file."""

    def not_yet(self, name: str) -> Problem:
        """Return the answer to who asks for a workflow that may still become known."""
        return retry_later(
            503, "unavailable", f"the workflow files have not been read yet; {name!r} may be there"
        )
