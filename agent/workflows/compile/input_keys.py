"""The keys of one input, as a workflow file declares it."""

from typing import Any, Final

from agent.core.quick_classes.quick_fields import ConfigDict, Field, model_validator
from agent.core.quick_classes.quick_models import BaseModel
from agent.workflows.compile.inputs import InputType, Json, find_problem, shown, type_problem

SYNONYMS: Final = {"text": "string", "array": "list", "mapping": "object", "int": "integer",
                   "float": "number", "bool": "boolean", "str": "string", "dict": "object"}  # fmt: skip


class InputKeys(BaseModel):
    """The keys of one input, in a file and in a compiled graph."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    type: InputType | None = Field(default=None, description="None: any JSON value")
    description: str | None = None
    default: Any = None
    required: bool | None = Field(
        default=None, description="default: true, unless there is a default"
    )
    choices: list[Any] | None = Field(
        default=None, min_length=1, description="the only values that are allowed"
    )

    @model_validator(mode="before")
    @classmethod
    def _in_one_way(cls, keys: Any) -> Any:
        if isinstance(keys, str):
            keys = {"type": keys}
        if not isinstance(keys, dict):
            return keys
        keys = dict(keys)
        if "enum" in keys and "choices" not in keys:
            keys["choices"] = keys.pop("enum")
        if isinstance(keys.get("type"), str):
            keys["type"] = SYNONYMS.get(keys["type"], keys["type"])
        return keys

    @model_validator(mode="after")
    def _makes_sense(self) -> "InputKeys":
        if self.required and self.has_default:
            raise ValueError("an input with a default is never required")
        for choice in self.choices or []:
            problem = type_problem(choice, self.type)
            if problem is not None:
                raise ValueError(f"the choice {shown(choice)} {problem}")
        if self.has_default and not (self.default is None and self.type is not None):
            problem = find_problem(self.default, self)
            if problem is not None:
                raise ValueError(f"the default {problem}")
        return self

    @property
    def has_default(self) -> bool:
        """Whether a default is written, also null."""
        return "default" in self.model_fields_set

    @property
    def is_required(self) -> bool:
        """Whether a task cannot start without it."""
        return not self.has_default if self.required is None else self.required

    def document(self) -> dict[str, Json]:
        """Return the input as a compiled graph contains it."""
        return self.model_dump(exclude_unset=True)
