"""Base classes of the documents, and how their examples reach the OpenAPI description."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from agent.server.examples.identities import AT

Instant = Annotated[str, Field(description="ISO 8601 in UTC", examples=[AT])]


def with_example(example: Any) -> ConfigDict:
    """Return the configuration of a response document, with its example."""
    return ConfigDict(extra="allow", json_schema_extra={"examples": [example]})


class ResponseDocument(BaseModel):
    """A document that the API returns; later versions may add members."""

    model_config = ConfigDict(extra="allow")


class RequestDocument(BaseModel):
    """A document that the API takes; an unknown member is a mistake."""

    model_config = ConfigDict(extra="forbid", strict=True)


def models_by_name() -> dict[str, type[BaseModel]]:
    """Return every document class that has been loaded, by its name in the description."""
    models: dict[str, type[BaseModel]] = {}
    bases: list[type[BaseModel]] = [ResponseDocument, RequestDocument]
    while bases:
        for model in bases.pop().__subclasses__():
            models[model.__name__] = model
            bases.append(model)
    return models
