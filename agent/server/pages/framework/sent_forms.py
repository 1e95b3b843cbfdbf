"""One-time keys of forms: a form that is sent twice, as by a double click, acts once.

Every form has a key of its page view beside the CSRF token. The same form with the same values and the
same key is one submission; with other values it is another. `SentForms` holds back a repetition while
the first is under way, and then answers it as the first was answered. It lasts as long as the server;
what creates something passes `key_of` on, as the dedupe key that the database keeps.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from agent.core.ids import request_hash
from agent.server.context import caller
from agent.server.pages.framework.page_request import Form

FIELD: Final = "form_key"
_MAX_KEPT: Final = 2000


def key_of(request: Request, form: Form) -> str | None:
    """Return the key by which a repeated form is recognised; None if the form has none."""
    if not form.get(FIELD):
        return None
    # The form has the CSRF token of its session: no other session can take the key.
    values = sorted(form.items())
    return f"form:{request_hash([caller(request).name, request.url.path, values])}"


class SentForms:
    """The forms that were sent last, each with the address that its sender was led to."""

    def __init__(self) -> None:
        self._done: OrderedDict[str, str] = OrderedDict()
        self._locks: dict[str, asyncio.Lock] = {}

    async def once(
        self,
        key: str | None,
        act: Callable[[], Awaitable[Response]],
        again: Callable[[str], Response],
    ) -> Response:
        """Act on a form, or answer a repetition with `again` and the address that the first led to.

        A form that was refused has done nothing, and may be sent again.
        """
        if key is None:
            return await act()
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                if key in self._done:
                    return again(self._done[key])
                response = await act()
                if response.status_code == 303:
                    self._done[key] = response.headers["location"]
                    if len(self._done) > _MAX_KEPT:
                        self._done.popitem(last=False)
                return response
        finally:
            if not lock.locked():
                self._locks.pop(key, None)
