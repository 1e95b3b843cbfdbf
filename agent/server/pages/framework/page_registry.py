"""Registers pages and the actions of their forms.

A page is a template and a function that reads its data in one snapshot of the database. An action is
a function that a form's POST calls; it changes something with the functions that the API uses, and
answers with a redirect to a page (`rendering.redirect`), or with the page again and the problem.
Every action needs a scope and a valid CSRF token, and a form that is sent twice acts once. What is refused is answered with a page.
"""

import hmac
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response

from agent.approvals import approval_documents
from agent.core.scopes import Scope
from agent.server.context import context_of
from agent.server.pages.framework import rendering
from agent.server.pages.framework.page_request import Form, PageRequest
from agent.server.pages.framework.renderings import Page, Version, by_latest_event
from agent.server.pages.framework.sent_forms import SentForms, key_of
from agent.server.problems import Problem, unsupported
from agent.server.requests.route_registry import Function, Method, Refusal, RouteRegistry
from agent.store.db.database import Connection
from agent.tasks.errors import NotFoundError
from agent.tasks.read_models import task_documents

Read = Callable[[Connection, PageRequest], Mapping[str, Any]]
Act = Callable[[Request, Form], Awaitable[Response]]

Find = Callable[[Connection, str], str]

_MAX_FIELDS: Final = 1000
_ID_LENGTH: Final = 36
_FINDERS: Final[Mapping[str, Find]] = {
    "task_id": task_documents.find_task,
    "approval_id": approval_documents.find_approval,
}
"""How an id in an address is found by its beginning or its end."""


class PageRegistry(RouteRegistry):
    """The pages of one module."""

    refuse: Refusal = staticmethod(rendering.refuse)

    def __init__(self, name: str) -> None:
        super().__init__(name, prefix="")
        self.pages: list[Page] = []

    def page(
        self,
        path: str,
        template: str,
        *,
        scope: Scope = "read",
        version: Version = by_latest_event,
        every_seconds: int | None = None,
    ) -> Callable[[Read], Page]:
        """Register a page: the decorated function returns the template's data.

        `version` returns a value that changes with the data, by default with every event of any task.
        `every_seconds` is for data that change without events, as with the time: the page is then
        also read again this often. Where this depends on the data, they have the key `every_seconds`.
        """

        def add(read: Read) -> Page:
            page = Page(path, template, read, version, every_seconds)

            async def show(request: Request) -> Response:
                if (address := await _whole_address(request)) is not None:
                    return rendering.redirect(request, address)
                return await rendering.respond(request, page)

            self.pages.append(page)
            self.route("GET", path, scope=scope, include_in_schema=False)(show)
            return page

        return add

    def action(self, path: str, *, scope: Scope) -> Callable[[Act], Act]:
        """Register the function that a form's POST calls, with the request and the form's fields."""

        def add(act: Act) -> Act:
            async def take(request: Request) -> Response:
                form = await read_form(request)
                check_csrf(request, form)
                sent: SentForms = request.app.state.sent_forms
                response = await sent.once(
                    key_of(request, form),
                    lambda: act(request, form),
                    lambda path: rendering.redirect_again(request, path),
                )
                # The next page must show the change, also where no event reports it.
                request.app.state.renderings.clear()
                return response

            # The audit log names the command after the function.
            take.__name__ = act.__name__
            self.route("POST", path, scope=scope, include_in_schema=False)(take)
            return act

        return add

    def stream(self, path: str) -> Callable[[Function], Function]:
        """Register what is sent bit by bit: a stream that the script reads, a file."""
        return self.route("GET", path, scope="read", include_in_schema=False)

    def open_route(self, path: str, method: Method = "GET") -> Callable[[Function], Function]:
        """Register a route that needs no session."""
        return self.route(method, path, scope="public", include_in_schema=False)


def sections_of(registries: Iterable[PageRegistry]) -> frozenset[str]:
    """Return the first parts of the paths of all pages."""
    return frozenset(
        endpoint.path.split("/", 2)[1] for registry in registries for endpoint in registry.endpoints
    )


async def _whole_address(request: Request) -> str | None:
    """Return the address with a whole id where it has a part, as lists show it; else None."""
    for name, find in _FINDERS.items():
        part = request.path_params.get(name)
        if part is None or len(part) >= _ID_LENGTH:
            continue
        try:
            whole = await context_of(request).read_pool.read(partial(_found, find, part))
        except NotFoundError:
            return None  # The page says so.
        query = f"?{request.url.query}" if request.url.query else ""
        return request.url.path.replace(f"/{part}", f"/{whole}", 1) + query
    return None


def _found(find: Find, part: str, connection: Connection) -> str:
    return find(connection, part)


async def read_form(request: Request) -> Form:
    """Read the form that a browser sent; of a repeated field, all values in lines."""
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/x-www-form-urlencoded":
        raise unsupported("application/x-www-form-urlencoded")
    try:
        text = (await request.body()).decode()
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
    except ValueError:
        raise Problem(400, "bad-request", "the form cannot be read") from None
    # Browsers send CRLF line ends.
    return {name: "\n".join(texts).replace("\r\n", "\n") for name, texts in fields.items()}


def check_csrf(request: Request, form: Form) -> None:
    """Refuse a form that did not come from a page of this session."""
    if not hmac.compare_digest(form.get("csrf", "").encode(), rendering.csrf_of(request).encode()):
        raise Problem(
            403, "forbidden", "this form is from another session: reload the page and try again"
        )
