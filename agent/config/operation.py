"""The sections of the configuration about operation: backups, disk space, traces."""

from agent.config.models import Section
from agent.core.quick_classes.quick_fields import Field


class BackupSettings(Section):
    """Backups of a SQLite database by the running agent. For PostgreSQL use pg_dump."""

    every_hours: float = Field(
        default=24.0,
        ge=0,
        le=8760,
        description="How often a copy is written and opened again to check it. 0: never.",
    )
    keep: int = Field(
        default=7, ge=1, le=1000, description="Copies to keep; older ones are removed."
    )
    directory: str = Field(
        default="backups",
        min_length=1,
        description="Where the copies are; relative to the home directory.",
    )
    before_upgrade: bool = Field(
        default=True,
        description="Whether a SQLite database is copied there before a new version of the agent"
        " upgrades it.",
    )


class DiskSettings(Section):
    """The disk space that must stay free in the directories of the agent's files."""

    low_mb: int = Field(
        default=500,
        ge=0,
        le=10**9,
        description="Below this the channels get a notification, and /readyz says degraded. 0: never.",
    )
    critical_mb: int = Field(
        default=50,
        ge=0,
        le=10**9,
        description="Below this there is another notification, and /readyz answers 503. 0: never.",
    )
    check_seconds: float = Field(
        default=60.0, ge=0.05, le=86_400, description="How often the space is checked."
    )


class TelemetrySettings(Section):
    """Traces by OpenTelemetry: one for each task. Needs the extra `otel`."""

    endpoint: str = Field(
        default="",
        pattern=r"^$|^https?://\S+$",
        description='Where spans are sent by OTLP over HTTP, as in "http://127.0.0.1:4318". Empty: no'
        " traces. OTEL_EXPORTER_OTLP_HEADERS holds the headers for it.",
    )
    service_name: str = Field(
        default="agent", min_length=1, description="The name of this agent in traces."
    )
    sample_ratio: float = Field(
        default=1.0, ge=0, le=1, description="The share of tasks that are traced."
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
