"""The OpenAPI description: complete, correct, and with examples."""

import re
from pathlib import Path
from typing import Any

import httpx
import jsonschema_rs
import openapi_spec_validator
import pytest

from agent.server.application import ROUTES
from agent.server.problems import TITLES


@pytest.fixture(scope="module")
def description(running: Any) -> dict[str, Any]:
    """Return the description that the server returns."""
    with running.client() as client:
        document: dict[str, Any] = client.get("/api/v1/openapi.json").json()
    return document


def _operations(description: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (method.upper(), path): operation
        for path, operations in description["paths"].items()
        for method, operation in operations.items()
    }


def test_every_route_is_described(description: dict[str, Any]) -> None:
    """Each has a summary, a description, its problems and its scope."""
    described = _operations(description)
    routes = {
        (str(endpoint.method), endpoint.path): endpoint
        for registry in ROUTES
        for endpoint in registry.endpoints
        # Pages are for people alone.
        if endpoint.options.get("include_in_schema", True)
    }
    assert described.keys() == routes.keys()
    for key, operation in described.items():
        assert operation["summary"], key
        assert operation["description"], key
        assert {"400", "401", "403", "413", "422", "429", "500", "503"} <= set(
            operation["responses"]
        ), key
        for code, response in operation["responses"].items():
            if int(code) >= 400:
                assert list(response["content"]) == ["application/problem+json"], key
        scope = routes[key].scope
        assert operation["security"] == ([] if scope == "public" else [{"token": [scope]}]), key


def test_the_documentation_lists_every_route() -> None:
    """docs/api.md has a row for each route, with its method and its scope."""
    text = (Path(__file__).parents[3] / "docs" / "api.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith(("| `GET", "| `POST", "| `DEL"))]
    for endpoint in (endpoint for registry in ROUTES for endpoint in registry.endpoints):
        path = re.sub(
            r"\{(task|approval|trigger|memory|conversation|lease|work)_id\}",
            "{id}",
            endpoint.path.removeprefix("/api/v1"),
        )
        path = path.replace("/hooks/{name}", "/hooks/{workflow}")
        last = f"`/{path.rpartition('/')[2]}`"
        matches = [
            row
            for row in rows
            if f"`{endpoint.method} {path}`" in row
            or (last in row and f"`{endpoint.method} {path.rpartition('/')[0]}/" in row)
        ]
        assert len(matches) == 1, (endpoint.method, path)
        scope = matches[0].rstrip("| ").rpartition("|")[2].strip()
        signed = ("/hooks/{workflow}", "/links/{token}", "/answers")
        assert scope == dict.fromkeys(signed, "its signature").get(
            path, "none" if endpoint.scope == "public" else endpoint.scope
        )


def test_every_reference_leads_somewhere(description: dict[str, Any]) -> None:
    """Every reference leads to a schema."""
    schemas = description["components"]["schemas"]

    def check(part: Any) -> None:
        if isinstance(part, dict):
            reference = part.get("$ref")
            if isinstance(reference, str):
                assert reference.removeprefix("#/components/schemas/") in schemas
            for member in part.values():
                check(member)
        elif isinstance(part, list):
            for member in part:
                check(member)

    check(description)


def _resolved(description: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas behind a schema: itself, its reference, or its alternatives."""
    if "$ref" in schema:
        return [description["components"]["schemas"][schema["$ref"].rpartition("/")[2]]]
    return [
        resolved
        for option in schema.get("anyOf", [])
        for resolved in _resolved(description, option)
        if option.get("type") != "null"
    ] or [schema]


def test_everything_has_examples(description: dict[str, Any]) -> None:
    """Every request and response has an example that matches its schema."""
    for key, operation in _operations(description).items():
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "path":
                assert parameter.get("example") or parameter["schema"].get("examples"), key
            else:
                assert parameter.get("description") or "default" in parameter["schema"], key
        contents = list(operation.get("requestBody", {}).get("content", {}).values())
        contents += [
            content
            for response in operation["responses"].values()
            for content in response.get("content", {}).values()
        ]
        assert contents, key
        for content in contents:
            if "example" in content:
                continue
            for schema in _resolved(description, content["schema"]):
                # What may be any JSON at all needs none.
                if schema.keys() <= {"title", "description"}:
                    continue
                whole = {**schema, "components": description["components"]}
                examples = schema.get("examples") or [
                    {
                        name: member["examples"][0]
                        for name, member in schema["properties"].items()
                        if "examples" in member
                    }
                ]
                for example in examples:
                    jsonschema_rs.validate(whole, example, offline=True)


def test_problem_types_have_titles(client: httpx.Client) -> None:
    """A problem's type is stable, for programs; its title is for people."""
    problem = client.get("/api/v1/tasks/none").json()
    slug = problem["type"].rpartition(":")[2]
    assert problem["title"] == TITLES[slug]
    assert set(problem) == {"type", "title", "status", "detail"}


def test_the_description_is_valid_openapi(description: dict[str, Any]) -> None:
    """By the official schema; servers and the way to authorize are declared."""
    openapi_spec_validator.validate(description)
    assert description["servers"] == [{"url": "/", "description": "This agent"}]
    assert description["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


def test_a_body_that_may_be_left_out_has_one_type(description: dict[str, Any]) -> None:
    """Generated clients send a body of a model or none; of a choice they always send something."""
    left_out = [
        media["schema"]
        for operation in _operations(description).values()
        for media in operation.get("requestBody", {}).get("content", {}).values()
        if not operation["requestBody"].get("required")
    ]
    assert {"$ref": "#/components/schemas/ReasonRequest"} in left_out
    assert not any("anyOf" in schema for schema in left_out)


def test_operation_ids_are_stable_names(description: dict[str, Any]) -> None:
    """A verb and a noun, once each: they are the names of functions in generated clients."""
    ids = [operation["operationId"] for operation in _operations(description).values()]
    assert len(set(ids)) == len(ids)
    for name in ids:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)+", name), name
    assert {"create_task", "pause_task", "approve_approval", "run_trigger"} <= set(ids)
