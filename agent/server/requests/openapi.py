"""The OpenAPI description, completed with problem documents and tokens."""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from agent.server.requests.route_registry import problem_response
from agent.server.schemas.base import models_by_name
from agent.server.schemas.problems import ProblemDocument

TAGS: Final = {
    "workflows": "Definitions: list, show, add and remove them.",
    "tasks": "Executions of workflows: start, list, show and control them.",
    "steps": "The steps of a task: their logs, their calls, and unknown effects.",
    "calls": "Calls of models and tools.",
    "budgets": "What tasks used of models, and their limits.",
    "conversations": "What people and agents said.",
    "artifacts": "Large values, by their hash.",
    "approvals": "Questions to people, and the answers.",
    "triggers": "Schedules and watchers.",
    "work": "Work for external workers: their calls, their queues, dead letters.",
    "snapshots": "What is appended to the context of a task.",
    "memories": "What agents remember.",
    "state": "Values that outlive tasks.",
    "events": "What happened, as a list and as a stream.",
    "hooks": "Webhooks that start workflows.",
    "links": "Signed answers.",
    "agent": "The running agent: its state, and its settings read again.",
    "health": "Health, readiness, metrics and load.",
    "description": "This description.",
}
"""The purpose of each group of operations."""


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the description of an application, built once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
            # Relative to the address that the description comes from: a proxy may be in front of it.
            servers=[{"url": "/", "description": "This agent"}],
            tags=_tags(app),
        )
        parts = document.setdefault("components", {})
        components = parts.setdefault("schemas", {})
        components["ProblemDocument"] = ProblemDocument.model_json_schema()
        for unused in ("HTTPValidationError", "ValidationError"):
            components.pop(unused, None)
        models = models_by_name()
        for name, schema in components.items():
            # FastAPI drops nulls from examples, which then no longer match their schema.
            extra = models[name].model_config.get("json_schema_extra") if name in models else None
            schema.update(extra if isinstance(extra, dict) else {})
        parts["securitySchemes"] = {
            "token": {
                "type": "http",
                "scheme": "bearer",
                "description": "The owner's token is in the agent's home directory;"
                " `agent token create` makes others.",
            }
        }
        for route in app.routes:
            assert isinstance(route, APIRoute)
            scope = getattr(route, "required", None)
            for method in (route.methods or ()) if route.include_in_schema else ():
                operation = document["paths"][route.path][method.lower()]
                operation["security"] = [] if scope == "public" else [{"token": [scope]}]
                if route.body_field is not None:
                    operation["responses"]["415"] = problem_response("The body is not JSON")
                    _leave_out_null(operation["requestBody"])
        app.openapi_schema = document
    return app.openapi_schema


def _leave_out_null(body: dict[str, Any]) -> None:
    """Describe a body that may be left out by its model alone: null counts as no body.

    Generators of clients make a body of two types that must be sent.
    """
    for media in body["content"].values():
        choices = media.get("schema", {}).get("anyOf", ())
        models = [choice for choice in choices if choice != {"type": "null"}]
        if len(models) == 1 < len(choices):
            media["schema"] = models[0]


def _tags(app: FastAPI) -> list[dict[str, Any]]:
    """Return the groups of operations, in the order of the routes."""
    names = dict.fromkeys(
        str(tag)
        for route in app.routes
        if isinstance(route, APIRoute) and route.include_in_schema
        for tag in route.tags
    )
    return [{"name": name, "description": TAGS[name]} for name in names]
