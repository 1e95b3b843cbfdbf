"""Sign-in by a one-time link, and sign-out.

Opening the link only shows a button: previews of chats and mail scanners follow links, and must not
use it up. The button's POST begins the session.
"""

from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from agent.core.logs import audit
from agent.server.access.one_time_links import PATH
from agent.server.access.sessions import LinkError, cookie_name
from agent.server.context import caller, context_of
from agent.server.pages.framework import rendering
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import Form
from agent.server.problems import retry_later
from agent.server.requests.request_guard import SECURE_PREFIX
from agent.server.requests.route_registry import GRANT, client_address

pages = PageRegistry("sign-in")


@pages.open_route(PATH + "/{code}")
async def show_link(request: Request) -> Response:
    """Show the button that begins a session; this changes nothing."""
    try:
        context_of(request).sessions.check_link(request.path_params["code"])
    except LinkError as error:
        return _refused(request, error)
    return rendering.render_signed_out(request, "sign_in.html", {})


@pages.open_route(PATH + "/{code}", "POST")
async def begin_session(request: Request) -> Response:
    """Begin a session: the link is used up."""
    context, source = context_of(request), client_address(request.scope)
    try:
        begun = context.sessions.begin(request.path_params["code"])
    except LinkError as error:
        refusal = _refused(request, error)
        # Afterwards: beyond the limit of an address it raises, and adds nothing to the audit log.
        audit.record("page:unknown", source, "sign in", f"refused: {error}")
        return refusal
    audit.record(f"page:{begun.name}", source, "sign in", "done")
    response = rendering.HEADERS | {
        "location": "/",
        "set-cookie": _cookie(request, begun.token, begun.seconds),
    }
    return Response(status_code=303, headers=response)


@pages.action("/sign-out", scope="read")
async def sign_out(request: Request, form: Form) -> Response:
    """End the session of this browser."""
    context_of(request).sessions.revoke(caller(request).name)
    headers = {**rendering.HEADERS, "location": "/", "set-cookie": _cookie(request, "", 0)}
    return Response(status_code=303, headers=headers)


def _refused(request: Request, error: LinkError) -> Response:
    context = context_of(request)
    wait = context.failed_auth_limiter.add(client_address(request.scope))
    if wait > 0:
        raise retry_later(429, "too-many", "too many links that are not valid", wait)
    detail = str(error)
    # A link that is opened twice is no reason to tell a browser with a session that it has none.
    data = {"detail": rendering.sentence(detail) + ".", "is_signed_in": GRANT in request.scope}
    return rendering.render_signed_out(request, "signed_out.html", data, status=404)


def _cookie(request: Request, token: str, seconds: int) -> str:
    """Return the session's cookie; `Secure` where browsers come over TLS."""
    settings = context_of(request).settings
    public = urlsplit(settings.server.public_url)
    is_secure = public.scheme == "https" and public.netloc == request.headers["host"].lower()
    name = cookie_name(settings.home)
    parts = [f"{SECURE_PREFIX if is_secure else ''}{name}={token}", "Path=/", f"Max-Age={seconds}"]
    parts += ["HttpOnly", "SameSite=Strict", *(["Secure"] if is_secure else [])]
    return "; ".join(parts)
