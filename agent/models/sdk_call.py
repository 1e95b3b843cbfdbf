"""One question to a provider through its SDK.

The SDKs come from one generator: their errors have the same names and say the same, so what becomes
of an exchange is decided here once.
"""

from types import ModuleType
from typing import Any

import httpx2

from agent.models import response_parsing
from agent.models.errors import malformed, status_error, timed_out, transport_error


async def ask(
    sdk: ModuleType,
    base_error: type[Exception],
    create: Any,
    keywords: dict[str, Any],
    seconds: float,
    id_header: str,
    where: str,
) -> tuple[str, str | None]:
    """Return the text of the answer and the id that the provider gave it; raise what it ended in.

    `create` opens an answer that is read as it comes; `base_error` is what all errors of the SDK are.
    """
    request_id: str | None = None
    try:
        async with create(**keywords, timeout=seconds) as answer:
            request_id = response_parsing.word(answer.headers.get(id_header))
            return await response_parsing.received(answer), request_id
    except sdk.APITimeoutError as problem:
        error = transport_error(problem, where)
        raise (error if error.code == "timeout" else timed_out(where)) from problem
    except (sdk.APIConnectionError, httpx2.RequestError) as problem:
        raise transport_error(problem, where, request_id) from problem
    except sdk.APIStatusError as problem:
        raise status_error(
            problem.status_code,
            problem.response.headers,
            problem.body,
            where,
            problem.request_id,
        ) from problem
    except (base_error, response_parsing.TooLargeError) as problem:
        raise malformed(str(problem), where, request_id) from problem
