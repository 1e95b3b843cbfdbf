"""The arguments of a route: path, query, headers and body of a request, validated.

FastAPI reads the routes' signatures and describes them. Its own parsing of requests costs more than
most responses, since it supports forms, files and dependencies, which no route here has. Validation
errors have FastAPI's wording, and all of them are reported at once.
"""

import json
from collections.abc import Mapping
from typing import Any, get_args, get_origin

from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import QueryParams
from starlette.requests import Request

from agent.server.problems import Problem


class RequestArgs:
    """Reads the arguments of one route's function from requests."""

    def __init__(self, dependant: Dependant) -> None:
        assert not dependant.dependencies
        assert not dependant.cookie_params
        assert len(dependant.body_params) <= 1
        self._request_name = dependant.request_param_name
        self._path = dependant.path_params
        self._query = dependant.query_params
        self._repeatable = [
            field.alias for field in self._query if list in _parts(field.field_info.annotation)
        ]
        self._headers = dependant.header_params
        self._body = dependant.body_params

    async def __call__(self, request: Request) -> dict[str, Any]:
        """Return the arguments; raise one error that lists every problem."""
        values: dict[str, Any] = {}
        errors: list[Any] = []
        _read("path", self._path, request.path_params, values, errors)
        if self._query:
            _read("query", self._query, self._query_values(request.query_params), values, errors)
        if self._headers:
            _read("header", self._headers, request.headers, values, errors)
        for field in self._body:
            content = await request.body()
            body = {field.alias: _parsed(content)} if content else {}
            _read("body", [field], body, values, errors)
        if errors:
            raise RequestValidationError(errors)
        if self._request_name is not None:
            values[self._request_name] = request
        return values

    def _query_values(self, query: QueryParams) -> Mapping[str, Any]:
        """Return the parameters of a query; those that may be repeated as lists."""
        repeated = [name for name in self._repeatable if name in query]
        return {**query, **{name: query.getlist(name) for name in repeated}} if repeated else query


def _parts(annotation: Any) -> set[Any]:
    """Return the types that an annotation is made of: of `list[str] | None` list and None."""
    return {get_origin(part) or part for part in get_args(annotation) or (annotation,)}


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        message = f"JSON decode error: {error}"
        raise RequestValidationError([{"loc": ("body",), "msg": message}]) from None
    except (ValueError, RecursionError):
        # Not UTF-8, nested too deeply, or a number with thousands of digits.
        raise Problem(400, "bad-request", "the body cannot be read as JSON") from None


def _read(
    where: str,
    fields: list[Any],
    source: Mapping[str, Any],
    values: dict[str, Any],
    errors: list[Any],
) -> None:
    for field in fields:
        value = source.get(field.alias)
        location = (where,) if where == "body" else (where, field.alias)
        # A body may be null; elsewhere None means that the value is missing.
        if value is None and field.alias not in source:
            if field.field_info.is_required():
                errors.append({"loc": location, "msg": "Field required"})
            else:
                values[field.name] = field.get_default()
            continue
        values[field.name], field_errors = field.validate(value, loc=location)
        errors += field_errors
