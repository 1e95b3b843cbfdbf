"""What a request gives a route: path, query, headers and body, held against its description.

FastAPI reads the routes' signatures and describes them; its own way of taking requests apart costs
more than most answers, since it serves forms, files, dependencies and more that no route here has.
What is wrong with a request is told in the same words, all of it at once.
"""

import json
from collections.abc import Mapping
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.exceptions import RequestValidationError
from starlette.requests import Request

from agent.server.problems import Problem


class RequestArgs:
    """Takes the arguments of one route's function from requests."""

    def __init__(self, dependant: Dependant) -> None:
        assert not dependant.dependencies
        assert not dependant.cookie_params
        assert len(dependant.body_params) <= 1
        self._request_name = dependant.request_param_name
        self._path = dependant.path_params
        self._query = dependant.query_params
        self._headers = dependant.header_params
        self._body = dependant.body_params

    async def __call__(self, request: Request) -> dict[str, Any]:
        """Return the arguments, or raise all that is wrong with them."""
        values: dict[str, Any] = {}
        errors: list[Any] = []
        _take("path", self._path, request.path_params, values, errors)
        if self._query:
            _take("query", self._query, request.query_params, values, errors)
        if self._headers:
            _take("header", self._headers, request.headers, values, errors)
        for field in self._body:
            content = await request.body()
            given = {field.alias: _parsed(content)} if content else {}
            _take("body", [field], given, values, errors)
        if errors:
            raise RequestValidationError(errors)
        if self._request_name is not None:
            values[self._request_name] = request
        return values


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except json.JSONDecodeError as error:
        message = f"JSON decode error: {error}"
        raise RequestValidationError([{"loc": ("body",), "msg": message}]) from None
    except (ValueError, RecursionError):
        # Not UTF-8, nested too deeply, or a number of thousands of digits.
        raise Problem(400, "bad-request", "the body cannot be read as JSON") from None


def _take(
    where: str,
    fields: list[Any],
    given: Mapping[str, Any],
    values: dict[str, Any],
    errors: list[Any],
) -> None:
    for field in fields:
        value = given.get(field.alias)
        place = (where,) if where == "body" else (where, field.alias)
        # A body may be null; anything else that is not given is not there.
        if value is None and field.alias not in given:
            if field.field_info.is_required():
                errors.append({"loc": place, "msg": "Field required"})
            else:
                values[field.name] = field.get_default()
            continue
        values[field.name], found = field.validate(value, loc=place)
        errors += found
