"""HTTP to an agent elsewhere: its address, its token, and what its refusals mean here."""

import ipaddress
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx

from agent.cli.errors import CommandError, Exit

if TYPE_CHECKING:
    from agent.config.settings import Settings

_TIMEOUT_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 30.0
"""For an agent that answered before: it may be starting anew."""
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
    """Asks an agent's HTTP API."""

    def __init__(self, url: str, settings: "Settings", *, notify: Callable[[str], None]) -> None:
        self._url, is_here = _checked(url)
        self._has_answered = False
        token = _token(settings, is_here=is_here)
        if self._url.startswith("http:") and not is_here:
            notify("agent: the token travels unencrypted: use https")
        self._http = httpx.Client(
            base_url=f"{self._url}/api/v1",
            headers={"Authorization": f"Bearer {token}"},
            timeout=_TIMEOUT_SECONDS,
            # Certificates take a while to be read, and loopback has none. Nor has it a proxy.
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
        """Return what is at a path."""
        given = {name: value for name, value in query.items() if value is not None}
        return self._ask("GET", path, is_repeatable=True, params=given)

    def post(self, path: str, document: Any = None, *, key: str | None = None) -> Any:
        """Send a document; with a key it may be sent again when its answer is lost."""
        headers = {} if key is None else {"Idempotency-Key": key}
        return self._ask(
            "POST", path, is_repeatable=key is not None, json=document, headers=headers
        ).json()

    def post_text(self, path: str, text: str, media: str) -> Any:
        """Send a text."""
        headers = {"Content-Type": media}
        return self._ask(
            "POST", path, is_repeatable=True, content=text.encode(), headers=headers
        ).json()

    def _ask(self, method: str, path: str, *, is_repeatable: bool, **given: Any) -> httpx.Response:
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while True:
            wait = 0.5
            try:
                answer = self._http.request(method, path, **given)
            except httpx.TransportError as error:
                # What surely did not begin may be sent again, whatever it is.
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
        """Raise what a refusal means for whoever gave the command."""
        if answer.is_success:
            return answer
        if answer.headers.get("content-type") != "application/problem+json":
            raise CommandError(
                f"what answers at {self._url} is no agent: {answer.status_code}"
                f" {answer.reason_phrase}",
                Exit.NO_DATABASE,
            )
        detail = str(answer.json()["detail"])
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            detail = f"the agent at {self._url} does not know this token"
        raise CommandError(detail, _CODES.get(answer.status_code, Exit.NO_DATABASE))


def _checked(url: str) -> tuple[str, bool]:
    """Return an address without what follows it, and whether it is on this machine."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    try:
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.query or parts.fragment:
        raise CommandError(f"--server {url}: write it as http://127.0.0.1:8420")
    if parts.username is not None or parts.password is not None:
        raise CommandError("--server: no token in the address; AGENT_TOKEN or a file names it")
    path = parts.path.rstrip("/").removesuffix("/api/v1")
    return f"{parts.scheme}://{parts.netloc}{path}", _is_here(parts.hostname or "")


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token(settings: "Settings", *, is_here: bool) -> str:
    """Return the token from the environment or a file; the owner's own is only for this machine."""
    token = os.environ.get("AGENT_TOKEN", "").strip()
    named = os.environ.get("AGENT_TOKEN_FILE")
    file = Path(named) if named else settings.home / "token"
    if not token and (named or is_here):
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            if named:
                raise CommandError(f"AGENT_TOKEN_FILE: {error}") from None
    if not token or not token.isascii() or not token.isprintable():
        raise CommandError(
            "no token: put one into AGENT_TOKEN, or the name of its file into AGENT_TOKEN_FILE"
        )
    return token
