"""The OpenAPI description, completed with problem documents and tokens."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from agent.server.route_registry import problem_response
from agent.server.schemas.base import models_by_name
from agent.server.schemas.problems import ProblemDocument


def describe(app: FastAPI) -> dict[str, Any]:
    """Return the description of an application, built once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
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
                if scope != "public":
                    operation["security"] = [{"token": [scope]}]
                if route.body_field is not None:
                    operation["responses"]["415"] = problem_response("The body is not JSON")
        app.openapi_schema = document
    return app.openapi_schema
