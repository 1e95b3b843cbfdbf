"""The keys under `executor:`, one model an executor: where the code of a `python` or `shell` step runs.

`executor: process` is short for `executor: {process: {}}`.
"""

import re
from typing import Annotated, Any, Final, Literal, get_args

from agent.core.quick_classes.quick_fields import (
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)
from agent.core.quick_classes.quick_models import BaseModel
from agent.workflows.compile.field_types import PositiveDuration
from agent.workflows.diagnostics import did_you_mean

_Name = Literal["local", "process", "job", "ray", "dask"]
EXECUTORS: Final[tuple[str, ...]] = get_args(_Name)
KINDS: Final = ("python", "shell")
"""The kinds of steps whose code an executor runs."""

_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)i?B?", re.IGNORECASE)


def parse_size(value: object) -> int:
    """Parse a number of bytes, as in `512MB`; units are powers of 1024."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is not a size such as 512MB or 2GB")
    return int(float(match[1]) * _UNITS[match[2].upper()])


Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["512MB", "2GB"]}),
]


class _Keys(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class LocalKeys(_Keys):
    """In the agent's own process."""


class ProcessKeys(_Keys):
    """In a process of its own, with limits."""

    memory: Size | None = Field(
        default=None, ge=2**24, le=2**50, description="bytes that its process may allocate"
    )
    cpu_seconds: int | None = Field(
        default=None, ge=1, le=31_536_000, description="processor time of one attempt"
    )
    files: int | None = Field(
        default=None, ge=16, le=1_048_576, description="files that its process may have open"
    )


class JobKeys(_Keys):
    """As a job that the command of the configuration launches."""

    start_within: PositiveDuration | None = Field(
        default=None, description="how long it may take to begin; default: [executors.job]"
    )


class RayKeys(_Keys):
    """As a detached actor of a Ray cluster."""

    num_cpus: float | None = Field(default=None, ge=0, le=100_000)
    num_gpus: float | None = Field(default=None, ge=0, le=10_000)
    memory: Size | None = Field(default=None, ge=1, le=2**60, description="bytes to reserve")
    resources: dict[str, float] | None = Field(
        default=None, max_length=50, description="further resources of the cluster to reserve"
    )


class DaskKeys(_Keys):
    """As one task of a Dask cluster."""

    resources: dict[str, float] | None = Field(
        default=None, max_length=50, description="resources of the worker to reserve"
    )


class ExecutorKeys(_Keys):
    """Where the code of a step runs: exactly one of these."""

    local: LocalKeys | None = None
    process: ProcessKeys | None = None
    job: JobKeys | None = None
    ray: RayKeys | None = None
    dask: DaskKeys | None = None

    @model_validator(mode="after")
    def _one(self) -> "ExecutorKeys":
        if len(self.model_fields_set) != 1:
            raise ValueError(f"name exactly one executor: {', '.join(EXECUTORS)}")
        return self

    def document(self) -> dict[str, Any]:
        """Return it as a graph contains it: the executor's name with its options."""
        (name,) = self.model_fields_set
        options: BaseModel = getattr(self, name)
        return {"name": name, **options.model_dump(exclude_none=True)}


def _from_text(value: object) -> object:
    """Read the short form, and executors without options."""
    if isinstance(value, str):
        if value not in EXECUTORS:
            hint = did_you_mean(value, EXECUTORS)
            known = f"; {hint}" if hint else f": there are {', '.join(EXECUTORS)}"
            raise ValueError(f"there is no executor {value!r}{known}")
        return {value: {}}
    if isinstance(value, dict):
        return {name: {} if keys is None else keys for name, keys in value.items()}
    return value


Executor = Annotated[
    ExecutorKeys,
    BeforeValidator(_from_text, json_schema_input_type=ExecutorKeys | _Name),
]
