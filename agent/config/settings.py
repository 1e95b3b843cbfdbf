"""The configuration: what can be set, within which bounds, and its defaults.

These models are the one definition: `default_file` makes the commented `config.toml` that is shipped
from them, and a test keeps the two equal. `loader` reads them from a file and the environment.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from agent.config.channels import ChannelSettings, NotifySettings
from agent.config.execution import EngineSettings, HttpSettings, ShellSettings, StepSettings
from agent.config.executors import ExecutorSettings
from agent.config.locations import Locations
from agent.config.mail import MailSettings
from agent.config.models import (
    ArtifactSettings,
    Bare,
    BudgetSettings,
    LlmSettings,
    McpSettings,
    ModelSettings,
    Section,
    section,
)
from agent.config.operation import BackupSettings, DiskSettings, PruneSettings, TelemetrySettings
from agent.config.secrets import SecretSettings
from agent.core.quick_classes.quick_fields import Field, field_validator

if TYPE_CHECKING:
    from pydantic import BaseModel


class AgentSettings(Section):
    """Where the agent lives."""

    home: str = Field(
        default="data",
        min_length=1,
        description="Directory for the database and other files; relative to this file."
        " AGENT_HOME overrides it.",
    )
    timezone: str = Field(
        default="",
        description="The time zone of `today` in templates, and of pages without scripts, as in"
        " Europe/Berlin. Empty: the machine's.",
    )
    trusted_users: list[Bare] = Field(
        default_factory=list,
        description="Users, by name or number, that may own the configuration, the home directory and"
        ' the workflows, besides the agent\'s own user and root; ["*"] turns the check off. For the'
        " configuration file itself only AGENT_AGENT__TRUSTED_USERS counts.",
    )
    trusted_groups: list[Bare] = Field(
        default_factory=list,
        description="Groups, by name or number, whose members may write to these files. For the"
        " configuration file itself only AGENT_AGENT__TRUSTED_GROUPS counts.",
    )

    @field_validator("timezone")
    @classmethod
    def _is_a_zone(cls, name: str) -> str:
        from zoneinfo import ZoneInfo

        try:
            return str(ZoneInfo(name)) if name else name
        except (ValueError, OSError):
            raise ValueError(f"there is no time zone {name!r}; write it as Europe/Berlin") from None


class DatabaseSettings(Section):
    """Where tasks are kept."""

    url: str = Field(
        default="",
        pattern=r"^$|^sqlite:///.+|^postgres(ql)?://.+",
        description='Empty: SQLite in the home directory. Or "sqlite:///path/to/file.db", or'
        ' "postgresql://user@host/name"; a connection pooler such as PgBouncer may be in front of it.',
    )


class ServerSettings(Section):
    """The HTTP API of the daemon."""

    enabled: bool = Field(default=True, description="Whether `agent up` serves it.")
    host: str = Field(
        default="127.0.0.1",
        min_length=1,
        description="The address to listen on: of this machine alone, unless allow_remote is set.",
    )
    port: int = Field(default=8420, ge=0, le=65_535, description="0: any free port.")
    allow_remote: bool = Field(
        default=False,
        description="Whether host may be an address that other machines reach. There is no TLS:"
        " put a proxy in front of it.",
    )
    public_url: str = Field(
        default="",
        pattern=r"^$|^https?://[^/\s]+$",
        description="Where browsers reach it behind a proxy or a VPN, as in"
        ' "https://agent.example.com": links to the dashboard begin with it, and its host is allowed.',
    )
    allowed_hosts: list[Bare] = Field(
        default_factory=list,
        description="Host names that requests may use, besides localhost and host: those of a proxy"
        " in front of it.",
    )
    allowed_origins: list[Bare] = Field(
        default_factory=list,
        description='Web pages of other origins that may call it, as in ["https://example.com"].',
    )
    max_body_bytes: int = Field(
        default=1_048_576, ge=1024, le=67_108_864, description="The largest request body."
    )
    max_requests: int = Field(
        default=256,
        ge=1,
        le=10_000,
        description="Requests answered at the same time, three quarters of them of one token; more are"
        " refused with Retry-After.",
    )
    max_streams: int = Field(
        default=64,
        ge=1,
        le=1000,
        description="Streams of events open at the same time, three quarters of them of one token.",
    )
    database_threads: int = Field(
        default=4,
        ge=1,
        le=64,
        description="Threads that read the database, and as many for commands.",
    )


class LogSettings(Section):
    """The daemon's log."""

    format: Literal["auto", "console", "json"] = Field(
        default="auto", description="auto: console on a terminal, json elsewhere."
    )
    level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error."
    )


class ApprovalSettings(Section):
    """Questions to people."""

    loop_seconds: float = Field(
        default=5.0,
        ge=0.05,
        le=3600,
        description="Checks this often for questions that have expired or need a reminder, also of"
        " paused tasks: the safety net.",
    )


class WorkflowSettings(Section):
    """Where workflow files are found."""

    directory: str = Field(
        default="workflows",
        min_length=1,
        description="Its files can be started by name; relative to this file.",
    )


class Settings(Section, Locations):
    """The whole configuration, with the directory that its relative paths start from."""

    agent: AgentSettings = section()
    database: DatabaseSettings = section()
    engine: EngineSettings = section()
    steps: StepSettings = section()
    http: HttpSettings = section()
    shell: ShellSettings = section()
    executors: ExecutorSettings = section()
    server: ServerSettings = section()
    log: LogSettings = section()
    llm: LlmSettings = section()
    budget: BudgetSettings = section()
    approvals: ApprovalSettings = section()
    channels: ChannelSettings = section()
    notify: NotifySettings = section()
    artifacts: ArtifactSettings = section()
    prune: PruneSettings = section()
    backup: BackupSettings = section()
    disk: DiskSettings = section()
    telemetry: TelemetrySettings = section()
    secrets: SecretSettings = section()
    workflows: WorkflowSettings = section()
    models: dict[str, ModelSettings] = Field(default_factory=dict)
    mcp: dict[str, McpSettings] = Field(default_factory=dict)
    mail: dict[str, MailSettings] = Field(default_factory=dict)
    base: Path = Field(default_factory=Path, exclude=True)
    file: Path | None = Field(default=None, exclude=True)
    trusted_by_environment: tuple[list[str], list[str]] = Field(default=([], []), exclude=True)
    """The users and groups that may own and write the configuration file."""

    @property
    def backup_directory(self) -> Path:
        """Where the running agent writes its backups."""
        return self.home / Path(self.backup.directory).expanduser()

    @property
    def data_directories(self) -> list[Path]:
        """The directories of this machine that the agent's files grow in."""
        places = [self.home, self.backup_directory]
        if self.database_url.startswith("sqlite:///"):
            places.append(Path(self.database_url.removeprefix("sqlite:///")).parent)
        if self.artifacts_url and "://" not in self.artifacts_url:
            places.append(Path(self.artifacts_url))
        return places

    @property
    def jobs_url(self) -> str:
        """Where the objects of jobs are: in the artifact store, or in the home directory."""
        if self.artifacts_url:
            return f"{self.artifacts_url.rstrip('/')}/jobs"
        return str((self.home / self.executors.job.directory).absolute())

    @property
    def mcp_servers(self) -> dict[str, McpSettings]:
        """The MCP servers; working directories are relative to the configuration's directory."""
        base = self.base.absolute()
        return {
            name: server.model_copy(update={"cwd": str(base / server.cwd)})
            for name, server in self.mcp.items()
        }

    @property
    def attach_from(self) -> tuple[str, ...]:
        """The directories whose files may be attached, as absolute paths."""
        base = self.base.absolute()
        return tuple(
            os.path.normpath(base / Path(directory).expanduser())
            for directory in self.steps.attach_from
        )


PLACES: Final = frozenset({"base", "file", "trusted_by_environment"})
"""Fields that say where the settings come from: no sections of the file."""


def sections() -> "dict[str, type[BaseModel]]":
    """Return the sections of the file by name; a section of sections is named with its own."""
    return dict(_sections(Settings.pydantic, ""))


def _sections(model: "type[BaseModel]", prefix: str) -> "Iterator[tuple[str, type[BaseModel]]]":
    from pydantic import BaseModel

    for name, field in model.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            inner = list(_sections(section, f"{prefix}{name}."))
            yield from inner or [(prefix + name, section)]
