"""The key `attach` of steps that send something to people: files, and values of the task."""

import re
from typing import Annotated, Any, Final

from agent.core.quick_classes.quick_fields import (
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from agent.core.quick_classes.quick_models import BaseModel

MAX_ATTACHMENTS: Final = 10


class AttachmentConfig(BaseModel):
    """A file below an allowed directory, or a value of the task under a name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str | None = Field(
        default=None,
        min_length=1,
        max_length=4096,
        description="a file below a directory of attach_from in [steps]",
    )
    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="what the recipient sees; needed with value and base64",
    )
    value: Any = Field(
        default=None, description="text as it is, anything else as JSON: mostly an output"
    )
    base64: str | None = Field(default=None, description="bytes, as `http` returns a binary body")

    @model_validator(mode="after")
    def _one_source(self) -> "AttachmentConfig":
        if sum(source is not None for source in (self.path, self.value, self.base64)) != 1:
            raise ValueError("give exactly one of path, value and base64")
        if self.path is None and self.name is None:
            raise ValueError("name is missing: what the recipient sees, such as report.csv")
        if self.name is not None and (re.search(r"[/\\\0\n\r\"]", self.name) or self.name == ".."):
            raise ValueError("name must be a file's name, without a directory")
        return self


def _as_list(value: Any) -> Any:
    """Let one attachment stand for a list, and a text for the path of a file."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    return [{"path": item} if isinstance(item, str) else item for item in values]


Attachments = Annotated[
    list[AttachmentConfig],
    BeforeValidator(_as_list, json_schema_input_type=Any),
    Field(max_length=MAX_ATTACHMENTS),
]
