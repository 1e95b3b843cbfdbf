"""HTTP requests to a remote agent: its address, its token, and its errors as exit codes."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import httpx

from agent.cli.client import address
from agent.cli.errors import CommandError, Exit

if TYPE_CHECKING:
    from agent.config.settings import Settings

_TIMEOUT_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 30.0
"""How long requests are retried: an agent that answered before may be restarting."""
_CODES: Final = {
    400: Exit.BAD_INPUT,
    413: Exit.BAD_INPUT,
    415: Exit.BAD_INPUT,
    422: Exit.BAD_INPUT,
    401: Exit.REFUSED,
    403: Exit.REFUSED,
    404: Exit.REFUSED,
    409: Exit.REFUSED,
}


class Transport:
    """Sends requests to an agent's HTTP API."""

    def __init__(self, url: str, settings: "Settings", *, notify: Callable[[str], None]) -> None:
        self._url, token, is_here = address.remote_agent(url, settings, notify)
        self._has_answered = False
        self._http = httpx.Client(
            base_url=f"{self._url}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=_TIMEOUT_SECONDS,
            # Loading certificates takes a while; loopback needs none, and no proxy.
            verify=self._url.startswith("https:"),
            trust_env=not is_here,
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def get(self, path: str, **query: Any) -> Any:
        """Return the document at a path."""
        return self.read(path, **query).json()

    def read(self, path: str, **query: Any) -> httpx.Response:
        """Return the response of a GET."""
        params = {name: value for name, value in query.items() if value is not None}
        return self._request("GET", path, is_repeatable=True, params=params)

    def post(self, path: str, document: Any = None, *, key: str | None = None) -> Any:
        """Send a document; with an idempotency key it is retried when its response is lost."""
        headers = {} if key is None else {"Idempotency-Key": key}
        return self._request(
            "POST", path, is_repeatable=key is not None, json=document, headers=headers
        ).json()

    def post_text(self, path: str, text: str, media: str) -> Any:
        """Send a text."""
        headers = {"Content-Type": media}
        return self._request(
            "POST", path, is_repeatable=True, content=text.encode(), headers=headers
        ).json()

    def _request(
        self, method: str, path: str, *, is_repeatable: bool, **options: Any
    ) -> httpx.Response:
        if not {".", ".."}.isdisjoint(path.split("/")):
            # HTTP clients leave such parts out: the address would be another one.
            raise CommandError("nothing is called . or ..", Exit.REFUSED)
        give_up = time.monotonic() + _RETRY_SECONDS
        while True:
            wait = 0.5
            try:
                answer = self._http.request(method, path, **options)
            except httpx.TransportError as error:
                # A request that was certainly not sent can be retried in any case.
                may_repeat = is_repeatable or isinstance(error, httpx.ConnectError)
                if not (may_repeat and self._has_answered) or time.monotonic() > give_up:
                    raise CommandError(
                        f"the agent at {self._url} does not answer: {error}", Exit.NO_DATABASE
                    ) from None
            else:
                self._has_answered = True
                is_busy = answer.status_code in (429, 503)
                if not is_busy or not is_repeatable or time.monotonic() > give_up:
                    return self._checked(answer)
                wait = min(float(answer.headers.get("retry-after", "1")), 5.0)
            time.sleep(wait)

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        """Return a successful response; raise `CommandError` for another one."""
        if answer.is_success:
            return answer
        if answer.headers.get("content-type") != "application/problem+json":
            raise CommandError(
                f"the server at {self._url} is not an agent: {answer.status_code}"
                f" {answer.reason_phrase}",
                Exit.NO_DATABASE,
            )
        detail = str(answer.json()["detail"])
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            detail = f"the agent at {self._url} does not accept this token"
        raise CommandError(detail, _CODES.get(answer.status_code, Exit.NO_DATABASE))
