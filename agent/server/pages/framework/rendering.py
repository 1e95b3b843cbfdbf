"""Responses with pages: filled templates, with each viewer's own values, and their headers."""

import gzip
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from datetime import tzinfo
from functools import cache
from typing import Any, Final
from urllib.parse import quote
from zoneinfo import ZoneInfo

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from agent.core.clock import to_iso
from agent.server.access.sessions import cookie_name
from agent.server.context import caller, context_of
from agent.server.pages.framework import (
    engine_texts,
    navigation,
    security_policy,
    sent_forms,
    templates,
)
from agent.server.pages.framework.notices import Notice, Notices
from agent.server.pages.framework.page_request import Form, PageRequest, page_request
from agent.server.pages.framework.renderings import (
    COUNT_SECONDS,
    MOST_COUNTED,
    Page,
    Renderings,
)
from agent.server.problems import TITLES, Problem, problem_of
from agent.server.requests.request_guard import session_token
from agent.server.requests.route_registry import GRANT
from agent.store.channels.cursors import LogPosition
from agent.tasks.read_models import task_documents

REFRESH: Final = "x-agent-cursor"
"""The script's header when it fetches a page again: the cursor of the feed's last message, or nothing."""
HEADERS: Final = {
    "content-security-policy": security_policy.DASHBOARD,
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-robots-tag": "noindex",
}
MEDIA: Final = "text/html; charset=utf-8"
_MIN_ZIPPED: Final = 1000
_PAGE_TITLES: Final = {"forbidden": "Not allowed"}
"""Where the words of the API speak of tokens, which a person with a browser does not have."""
# Renderings are shared. These marks cannot be guessed, so no shown text contains one.
_CSRF_MARK: Final = f"csrf-{secrets.token_hex(16)}"
_KEY_MARK: Final = f"key-{secrets.token_hex(16)}"
_NOTICES_MARK: Final = f"notices-{secrets.token_hex(16)}"
_FORM_FIELDS: Final = (
    f'<input type="hidden" name="csrf" value="{_CSRF_MARK}">'
    f'<input type="hidden" name="{sent_forms.FIELD}" value="{_KEY_MARK}">'
)
"""The hidden fields of every form: where it is from, and which page view."""


async def respond(
    request: Request,
    page: Page,
    *,
    status: int = 200,
    problem: str | None = None,
    typed: Form | None = None,
    query: Mapping[str, str] | None = None,
) -> Response:
    """Return a page; after a refused form with the problem, the typed values and the parameters it had."""
    view = page_request(request)
    if problem is not None:
        # An action's address is not its page's, but has the same parts.
        parts = {name: quote(part, safe="") for name, part in request.path_params.items()}
        view.path, view.query = page.path.format(**parts), query or {}
        view.items = tuple(view.query.items())
    view.problem, view.typed = problem, typed or {}
    renderings: Renderings = request.app.state.renderings
    context = context_of(request)
    rendering = await renderings.get(
        page, view, context.read_pool, _fill, _notified_cursor(request)
    )
    is_first = status == 200
    return _viewed(request, rendering.text, rendering.digest, status, is_conditional=is_first)


async def respond_again(
    request: Request,
    page: Page,
    form: Form,
    error: Exception,
    prefix: str = "",
    query: Mapping[str, str] | None = None,
) -> Response:
    """Return the page of a form that was refused, with the problem; raise errors that are not about the form."""
    problem = problem_of(error)
    if problem.status_code not in (409, 422):
        raise error
    text = f"{prefix}{problem.detail}" if prefix else sentence(problem.detail)
    return await respond(
        request, page, status=problem.status_code, problem=text, typed=form, query=query
    )


def render(
    request: Request, template: str, data: Mapping[str, Any], *, status: int = 200
) -> Response:
    """Return a page that is not shared, from a template and its data; it stays as it is."""
    data = {"waiting_count": 0, "is_still": True, **data}
    text = _fill(template, page_request(request), data)
    return _viewed(request, text, "", status, is_conditional=False)


def render_signed_out(
    request: Request, template: str, data: Mapping[str, Any], *, status: int = 200
) -> Response:
    """Return a page for a viewer without a session; it loads no script."""
    text = templates.environment().get_template(template).render(data)
    return Response(_encoded(text), status, headers=HEADERS, media_type=MEDIA)


def redirect(request: Request, path: str, notice: str | None = None) -> Response:
    """Return the response to an action that is done: the browser shows a page, with a notice."""
    if notice is not None:
        add_notice(request, notice)
    return Response(status_code=303, headers={"location": path, **HEADERS})


def redirect_again(request: Request, path: str) -> Response:
    """Return the response to a form that was sent before: where the first led to."""
    notices: Notices = request.app.state.notices
    if not notices.has(caller(request)):
        # Otherwise the browser has not shown the first answer yet, as after a double click.
        add_notice(request, "This form was sent before. Nothing was done a second time.")
    return redirect(request, path)


def back_of(form: Mapping[str, str]) -> str:
    """Return the page of ours that a form came from."""
    back = form.get("back", "")
    is_ours = back.startswith("/") and not back.startswith(("//", "/\\")) and back.isprintable()
    return back if is_ours else "/"


def path_of(*parts: str) -> str:
    """Return the address of a page: parts that people name are quoted."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def add_notice(request: Request, text: str, *, is_problem: bool = False) -> None:
    """Show a message on the session's next page."""
    notices: Notices = request.app.state.notices
    notices.add(caller(request), text, "problem" if is_problem else "done")


def refuse(request: Request, problem: Problem) -> Response:
    """Return the page that says why there is no other."""
    headers = {name: value for name, value in (problem.headers or {}).items() if value}
    if GRANT in request.scope:
        title = _PAGE_TITLES.get(problem.slug) or TITLES[problem.slug]
        heading = {"status": problem.status_code, "heading": title}
        response = render(
            request,
            "problem.html",
            {**heading, "detail": sentence(problem.detail)},
            status=problem.status_code,
        )
    elif request.headers.get("sec-fetch-site") == "cross-site" and request.method == "GET":
        # Browsers hold back the cookie of a visit that begins on another site.
        response = render_signed_out(request, "reload.html", {})
    else:
        detail = None if problem.status_code == 401 else problem.detail
        response = render_signed_out(
            request, "signed_out.html", {"detail": detail}, status=problem.status_code
        )
    response.headers.update(headers)
    return response


def sentence(text: object) -> str:
    """Return a message as a sentence begins."""
    words = str(text)
    return words[:1].upper() + words[1:]


def csrf_of(request: Request) -> str:
    """Return the CSRF token of a request's session; it is derived from the cookie and never stored."""
    name = cookie_name(context_of(request).settings.home)
    token = session_token(request.headers, name)
    return hmac.new(token.encode(), b"csrf", hashlib.sha256).hexdigest()


def _fill(template: str, request: PageRequest, data: Mapping[str, Any]) -> str:
    zone = _zone(request.context.settings.agent.timezone)
    return (
        templates.environment()
        .get_template(template)
        .render(
            {
                "live_tasks": (),
                "every_seconds": None,
                "count_seconds": COUNT_SECONDS,
                "most_counted": MOST_COUNTED,
                "is_still": False,
                "problem": request.problem,
                "typed": request.typed,
                "path": request.path,
                "now": to_iso(request.context.database.clock.now()),
                "may": request.may,
                "url": request.url,
                "nav": navigation.items(request.path, request.scopes),
                "csrf": Markup(_FORM_FIELDS),  # noqa: S704
                "notices": Markup(_NOTICES_MARK),  # noqa: S704
                "local": lambda instant: templates.local(instant, zone),
                "engine_text": lambda text: engine_texts.shown(text, zone),
                **data,
            }
        )
    )


def _viewed(
    request: Request, text: str, digest: str, status: int, *, is_conditional: bool
) -> Response:
    """Return a rendering with its viewer's own values, or 304 if the viewer has it already."""
    csrf, notices = csrf_of(request), ""
    if REFRESH not in request.headers:
        # A page that refreshes itself has shown its notices, and takes none of the next page.
        unseen: Notices = request.app.state.notices
        zone = _zone(context_of(request).settings.agent.timezone)
        notices = "".join(_notice(each, zone) for each in unseen.take(caller(request)))
    headers = {**HEADERS, "cache-control": "private, no-cache", "vary": "cookie, accept-encoding"}
    if is_conditional:
        tag = hashlib.sha256(f"{digest} {csrf} {notices}".encode()).hexdigest()[:32]
        headers["etag"] = f'W/"{tag}"'
        if headers["etag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
    # Not in the ETag: a page that is the same but for its keys need not be sent again.
    text = text.replace(_CSRF_MARK, csrf).replace(_KEY_MARK, secrets.token_urlsafe(12))
    body = _encoded(text.replace(_NOTICES_MARK, notices))
    if len(body) > _MIN_ZIPPED and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, compresslevel=3, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, status, headers=headers, media_type=MEDIA)


def _notice(notice: Notice, zone: tzinfo | None) -> str:
    text = engine_texts.shown(notice.text, zone)
    return f'<p class="notice {notice.tone}" role="status">{text}</p>'


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _notified_cursor(request: Request) -> LogPosition | None:
    text = request.headers.get(REFRESH)
    if not text:
        return None
    try:
        return task_documents.parse_cursor(text)
    except ValueError:
        return None


@cache
def _zone(name: str) -> tzinfo | None:
    """Return a zone by name; without one the machine's own."""
    return ZoneInfo(name) if name else None
