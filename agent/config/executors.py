"""The sections of the configuration about executors: where the code of steps runs."""

from typing import Annotated

from agent.config.models import Section, section
from agent.core.quick_classes.quick_fields import Field

Word = Annotated[str, Field(pattern=r"^[^\"']+$")]
"""A word without quotes: a list of words may also come from a variable of the environment."""


class ProcessSettings(Section):
    """Steps with `executor: process`, in processes that are kept for the next step."""

    processes: int = Field(
        default=4,
        ge=1,
        le=1000,
        description="Processes at the same time; further steps wait for a free one. Their time does"
        " not begin before that.",
    )
    memory_mb: int = Field(
        default=0,
        ge=0,
        le=10**9,
        description="What a process may allocate, where the step sets no `memory`. 0: no limit.",
    )
    cpu_seconds: int = Field(
        default=0,
        ge=0,
        le=31_536_000,
        description="Processor time of an attempt, where the step sets no `cpu_seconds`. 0: no limit.",
    )
    files: int = Field(
        default=0,
        ge=0,
        le=1_048_576,
        description="Files that a process may have open, where the step sets no `files`. 0: no limit.",
    )


class JobSettings(Section):
    """Steps with `executor: job`: a command launches `agent job`, which may run anywhere."""

    command: list[Word] = Field(
        default_factory=list,
        description='Launches a job, as in ["agent", "job"] for a process of this machine. {spec} is'
        " the address of the job's specification, which `agent job` reads from TASK_SPEC_PATH; {job}"
        " is a name that no other job has. Empty: no step can use it.",
    )
    cancel_command: list[Word] = Field(
        default_factory=list,
        description="Ends a job that does not stop by itself, with the same placeholders, as in"
        ' ["kubectl", "delete", "job", "{job}"]. Empty: only the job itself can stop.',
    )
    directory: str = Field(
        default="jobs",
        min_length=1,
        description="Where the objects of jobs are if [artifacts] has no url; relative to the home"
        " directory. Every machine that runs jobs must reach it by the same path.",
    )
    inherit: list[Word] = Field(
        default_factory=list,
        description="Variables of the agent's environment that the command gets, besides PATH, HOME,"
        " USER, LOGNAME, SHELL, LANG, LC_*, TZ and TMPDIR.",
    )
    start_seconds: float = Field(
        default=300.0,
        ge=0.1,
        le=604_800,
        description='A job that has not begun by then fails: "job never started".',
    )
    heartbeat_seconds: float = Field(
        default=60.0,
        ge=0.5,
        le=86_400,
        description='A job whose status does not change for this long is lost: "heartbeat timeout".',
    )
    status_seconds: float = Field(
        default=10.0, ge=0.05, le=3600, description="How often a job writes its status."
    )
    poll_seconds: float = Field(
        default=2.0, ge=0.02, le=3600, description="How often the agent reads it."
    )


class RaySettings(Section):
    """Steps with `executor: ray`. Needs the extra `ray`; the objects of jobs are used too."""

    address: str = Field(
        default="auto",
        min_length=1,
        description='The cluster, as in "ray://head:10001"; auto finds the one of this machine.',
    )
    namespace: str = Field(
        default="agent", min_length=1, description="Where the names of its actors are unique."
    )


class DaskSettings(Section):
    """Steps with `executor: dask`. Needs the extra `dask`; the objects of jobs are used too."""

    address: str = Field(
        default="", description='The scheduler, as in "tcp://127.0.0.1:8786". Empty: none.'
    )


class ExecutorSettings(Section):
    """Where the code of steps runs."""

    process: ProcessSettings = section()
    job: JobSettings = section()
    ray: RaySettings = section()
    dask: DaskSettings = section()
