"""The key `attach` of steps that send something to people: files, and values of the task."""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

MOST_ATTACHMENTS: Final = 50

_NAME = r"^[^/\\\x00-\x1f\x7f]{1,200}$"
_MEDIA_TYPE = r"^[a-z0-9][a-z0-9!#$&^_.+-]{0,100}/[a-z0-9][a-z0-9!#$&^_.+-]{0,100}$"


class AttachmentConfig(BaseModel):
    """One attachment: a `file` below an allowed directory, or a `value` under a `name`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str | None = Field(default=None, min_length=1, max_length=4096)
    value: Any = Field(default=None, description="text as it is; anything else becomes JSON")
    encoding: Literal["base64"] | None = Field(
        default=None, description="base64: the value is a binary content, as `http` returns it"
    )
    name: str | None = Field(default=None, pattern=_NAME, examples=["report.pdf"])
    type: str | None = Field(default=None, pattern=_MEDIA_TYPE, examples=["application/pdf"])

    @model_validator(mode="after")
    def _one_source(self) -> "AttachmentConfig":
        has_value = "value" in self.model_fields_set
        if (self.file is not None) == has_value:
            raise ValueError("give exactly one of file and value")
        if has_value and self.name is None:
            raise ValueError("a value needs a name, as in name: report.json")
        if self.encoding is not None and not has_value:
            raise ValueError("encoding goes with value")
        return self


def _as_list(value: Any) -> Any:
    """Let one attachment stand for a list, and a text for a file."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    return [{"file": each} if isinstance(each, str) else each for each in values]


Attachments = Annotated[
    list[AttachmentConfig],
    BeforeValidator(_as_list, json_schema_input_type=Any),
    Field(max_length=MOST_ATTACHMENTS),
]
