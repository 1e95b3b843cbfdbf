"""The sections of the configuration about how tasks and steps run, and what steps may do."""

import ipaddress
import re
from typing import Annotated, Literal

from agent.config.models import Bare, Section
from agent.core.quick_classes.quick_fields import AfterValidator, Field


def _check_private(entry: str) -> str:
    """Refuse an entry that can match no address and no host name."""
    try:
        ipaddress.ip_network(entry, strict=False)
    except ValueError:
        if re.fullmatch(r"[\w-]+(\.[\w-]+)*\.?", entry) is None:
            raise ValueError("should be an address, a network or a host name") from None
    return entry


Private = Annotated[str, AfterValidator(_check_private)]


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
