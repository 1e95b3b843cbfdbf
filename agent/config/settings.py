"""The configuration: what can be set, within which bounds, and its defaults.

These models are the one definition: `default_file` makes the commented `config.toml` that is shipped
from them, and a test keeps the two equal. `loader` reads them from a file and the environment.
"""

import ipaddress
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, Field, field_validator

from agent.config.channels import ChannelSettings, NotifySettings
from agent.config.executors import ExecutorSettings
from agent.config.locations import Locations
from agent.config.mail import MailSettings
from agent.config.models import (
    ArtifactSettings,
    BudgetSettings,
    LlmSettings,
    McpSettings,
    ModelSettings,
    Section,
)
from agent.config.operation import BackupSettings, DiskSettings, TelemetrySettings
from agent.config.secrets import SecretSettings


def _check_private(entry: str) -> str:
    """Refuse an entry that can match no address and no host name."""
    try:
        ipaddress.ip_network(entry, strict=False)
    except ValueError:
        if re.fullmatch(r"[\w-]+(\.[\w-]+)*\.?", entry) is None:
            raise ValueError("should be an address, a network or a host name") from None
    return entry


Private = Annotated[str, AfterValidator(_check_private)]
Bare = Annotated[str, Field(pattern=r"^[^\"']+$")]
"""A name without quotes around it."""


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


class EngineSettings(Section):
    """How tasks are run."""

    slots: int = Field(
        default=50, ge=1, le=10_000, description="Steps that one worker runs at the same time."
    )
    poll_seconds: float = Field(
        default=1.0,
        ge=0.01,
        le=60,
        description="Polls for work this often even without a notification: the safety net.",
    )
    batch: int = Field(
        default=64, ge=1, le=1000, description="Steps claimed at most in one transaction."
    )
    lease_seconds: float = Field(
        default=60.0,
        ge=1,
        le=3600,
        description="A worker without a heartbeat for this long counts as dead; other workers get its steps.",
    )
    shutdown_seconds: float = Field(
        default=10.0,
        ge=0,
        le=3600,
        description="How long steps in flight may go on after SIGTERM.",
    )
    solo_seconds: float = Field(
        default=60.0,
        ge=0,
        le=3600,
        description="A step whose last attempt crashed its worker runs isolated, with no other"
        " step beside it, for at most this long.",
    )
    task_depth: int = Field(
        default=8, ge=1, le=100, description="Child tasks of child tasks, at most."
    )
    items_per_group: int = Field(
        default=10_000, ge=1, le=10_000, description="Items of one foreach or parallel step."
    )
    steps_per_task: int = Field(
        default=20_000, ge=1, le=20_000, description="Steps of one task, its items not counted."
    )
    inline_output_bytes: int = Field(
        default=65_536,
        ge=1024,
        le=1_048_576,
        description="Outputs larger than this are stored compressed, outside their steps' rows.",
    )
    retention_days: float = Field(
        default=30.0,
        gt=0,
        le=36_500,
        description="`agent db prune` removes tasks that ended longer ago than this.",
    )


class StepSettings(Section):
    """Bounds on what a step may do."""

    output_bytes: int = Field(
        default=1_048_576, ge=1024, le=67_108_864, description="The largest output of one step."
    )
    send_window_seconds: float = Field(
        default=10.0,
        ge=0.1,
        le=300,
        description="An effect whose intent was recorded starts within this time or not at all.",
    )
    call_seconds: float = Field(
        default=60.0,
        ge=0.1,
        le=86_400,
        description="How long one call may take where neither it nor its step has a timeout.",
    )
    attempt_seconds: float = Field(
        default=3600.0,
        ge=1,
        le=31_536_000,
        description="How long an attempt of a `python` or `shell` step may take where neither the"
        " step, nor `defaults`, nor the workflow has a `timeout`; `timeout: none` lifts it.",
    )
    log_bytes: int = Field(
        default=4_194_304,
        ge=1024,
        le=1_073_741_824,
        description="What one attempt may write to its log; the rest is dropped.",
    )
    executor: Literal["local", "process", "job", "ray", "dask"] = Field(
        default="local",
        description="Where the code of `python` and `shell` steps runs that have no `executor`:"
        " local (in this process), process, job, ray or dask.",
    )
    attach_from: list[Bare] = Field(
        default_factory=list,
        description="Directories whose files steps may attach to what they send; relative to this"
        ' file, as in ["outbox"]. Empty: no files, only values of the task.',
    )


class HttpSettings(Section):
    """The `http` kind of step."""

    allow_private: list[Private] = Field(
        default_factory=list,
        description="Private, loopback and link-local addresses are refused, except for these"
        ' (addresses, networks or host names, as in ["127.0.0.1", "10.0.0.0/8"]).',
    )
    response_bytes: int = Field(
        default=10_485_760, ge=1024, le=1_073_741_824, description="The largest response body."
    )
    max_redirects: int = Field(default=10, ge=0, le=50, description="Redirects to follow at most.")


class ShellSettings(Section):
    """The `shell` kind of step, and the `shell` tool of agents."""

    inherit: list[Bare] = Field(
        default_factory=list,
        description="Variables of the agent's own environment that commands get, besides PATH, HOME,"
        ' USER, LOGNAME, SHELL, LANG, LC_*, TZ and TMPDIR, as in ["SSH_AUTH_SOCK"].',
    )
    kill_grace_seconds: float = Field(
        default=5.0,
        ge=0,
        le=300,
        description="Time between SIGTERM and SIGKILL for a command and its children.",
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
        description="Requests answered at the same time; more are refused with Retry-After.",
    )
    max_streams: int = Field(
        default=64, ge=1, le=1000, description="Streams of events open at the same time."
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


class PruneSettings(Section):
    """What the running agent removes, as `agent db prune` does. No task is removed by default."""

    older_than_days: float = Field(
        default=0.0,
        ge=0,
        le=36_500,
        description="Removes tasks that ended longer ago than this, with their firings, as in 90.0."
        " 0: nothing is removed by itself.",
    )
    conversations_idle_days: float = Field(
        default=0.0,
        ge=0,
        le=36_500,
        description="Deletes what was said in conversations that got no message for this long, as in"
        " 365.0. 0: they are kept until `agent conversations forget`.",
    )
    unused_artifacts: bool = Field(
        default=True,
        description="Removes large values in the database that nothing refers to, one day after they"
        " were written. Values in a store outside it are removed with older_than_days.",
    )
    every_hours: float = Field(
        default=24.0,
        ge=0.01,
        le=8760,
        description="How often, beginning some minutes after the agent's start.",
    )

    @property
    def is_on(self) -> bool:
        """Whether the daemon removes anything."""
        return self.older_than_days > 0 or self.conversations_idle_days > 0 or self.unused_artifacts


class WorkflowSettings(Section):
    """Where workflow files are found."""

    directory: str = Field(
        default="workflows",
        min_length=1,
        description="Its files can be started by name; relative to this file.",
    )


class Settings(Section, Locations):
    """The whole configuration, with the directory that its relative paths start from."""

    agent: AgentSettings = Field(default_factory=AgentSettings)
    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    engine: EngineSettings = Field(default_factory=EngineSettings)
    steps: StepSettings = Field(default_factory=StepSettings)
    http: HttpSettings = Field(default_factory=HttpSettings)
    shell: ShellSettings = Field(default_factory=ShellSettings)
    executors: ExecutorSettings = Field(default_factory=ExecutorSettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    llm: LlmSettings = Field(default_factory=LlmSettings)
    budget: BudgetSettings = Field(default_factory=BudgetSettings)
    approvals: ApprovalSettings = Field(default_factory=ApprovalSettings)
    channels: ChannelSettings = Field(default_factory=ChannelSettings)
    notify: NotifySettings = Field(default_factory=NotifySettings)
    artifacts: ArtifactSettings = Field(default_factory=ArtifactSettings)
    prune: PruneSettings = Field(default_factory=PruneSettings)
    backup: BackupSettings = Field(default_factory=BackupSettings)
    disk: DiskSettings = Field(default_factory=DiskSettings)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings)
    secrets: SecretSettings = Field(default_factory=SecretSettings)
    workflows: WorkflowSettings = Field(default_factory=WorkflowSettings)
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
            os.path.normpath(base / Path(each).expanduser()) for each in self.steps.attach_from
        )


def sections() -> dict[str, type[BaseModel]]:
    """Return the sections of the file by name; a section of sections is named with its own."""
    return dict(_sections(Settings, ""))


def _sections(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            inner = list(_sections(section, f"{prefix}{name}."))
            yield from inner or [(prefix + name, section)]
