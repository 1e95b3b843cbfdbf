"""One request to a provider through its SDK, and the classes of its failures.

One generator makes both SDKs: their errors have the same names and meanings, so one function serves
both.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any

import httpx2

from agent.models import response_parsing
from agent.models.errors import malformed, status_error, timed_out, transport_error


@dataclass(frozen=True, slots=True)
class Sdk:
    """A provider's SDK."""

    module: ModuleType
    base_error: type[Exception]
    """The base class of all its errors."""
    id_header: str
    """The header in which the provider sends the id of a request."""


async def ask(
    sdk: Sdk, create: Any, keywords: dict[str, Any], seconds: float, where: str
) -> tuple[str, str | None]:
    """Return the text of the response and the provider's id of the request; raise `ModelError`.

    `create` opens a response that is read as it arrives.
    """
    errors = sdk.module
    request_id: str | None = None
    try:
        async with create(**keywords, timeout=seconds) as response:
            request_id = response_parsing.short_text(response.headers.get(sdk.id_header))
            return await response_parsing.read_body(response), request_id
    except errors.APITimeoutError as exception:
        error = transport_error(exception, where)
        raise (error if error.code == "timeout" else timed_out(where)) from exception
    except (errors.APIConnectionError, httpx2.RequestError) as exception:
        raise transport_error(exception, where, request_id) from exception
    except errors.APIStatusError as exception:
        raise status_error(
            exception.status_code,
            exception.response.headers,
            exception.body,
            where,
            exception.request_id,
        ) from exception
    except (sdk.base_error, response_parsing.TooLargeError) as exception:
        raise malformed(str(exception), where, request_id) from exception
