"""Where the files of an agent are, derived from its settings; the same for all forms of settings."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from agent.core.files.environment_file import NAME as ENVIRONMENT_FILE

INSTANCE_FILE: Final = "daemon.json"
"""In the home directory: describes a running agent."""


class Locations:
    """Paths and addresses; relative ones start from the configuration's directory."""

    if TYPE_CHECKING:
        # Not for pydantic, which would make fields of them.
        base: Path
        agent: Any
        artifacts: Any
        database: Any
        workflows: Any

    @property
    def home(self) -> Path:
        """The directory for the database and other files."""
        return self.base / str(self.agent.home)

    @property
    def database_url(self) -> str:
        """The database's URL; paths of SQLite files are relative to the configuration's directory."""
        url = self.database.url
        if not url:
            return f"sqlite:///{self.home / 'agent.db'}"
        if url.startswith("sqlite:///"):
            return f"sqlite:///{self.base / url.removeprefix('sqlite:///')}"
        return str(url)

    @property
    def artifacts_url(self) -> str:
        """Where large values are kept; paths are relative to the configuration's directory."""
        url = str(self.artifacts.url)
        return url if not url or "://" in url else str((self.base / url).absolute())

    @property
    def environment_file(self) -> Path:
        """The file whose values `env:NAME` references may use, beside the configuration."""
        return self.base / ENVIRONMENT_FILE

    @property
    def workflow_directory(self) -> Path:
        """The directory of workflow files."""
        return self.base / str(self.workflows.directory)
