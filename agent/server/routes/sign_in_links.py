"""One-time links to the dashboard, for `agent open --server`.

Only a token with the scope `admin` may make one: it may do everything already, so the session can do
nothing that its maker could not. The session never outlives the token, and is listed and revoked as any
other.
"""

from starlette.requests import Request
from starlette.responses import Response

from agent.core.clock import SECOND, to_iso
from agent.server.access.grants import TokenError
from agent.server.access.one_time_links import PATH
from agent.server.access.sessions import LINK_SECONDS
from agent.server.context import caller, context_of
from agent.server.problems import Problem
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.schemas.sign_in_links import NewSignInLink, SignInLink

routes = RouteRegistry("agent")


@routes.route(
    "POST",
    "/sign-in-links",
    scope="admin",
    status=201,
    returns=SignInLink,
    summary="A one-time link to the dashboard",
)
async def create_sign_in_link(request: Request, body: NewSignInLink | None = None) -> Response:
    """Return a link that begins a session of a browser, once and within a minute.

    It opens the dashboard without a token: keep it secret, and store it nowhere.
    """
    context, wanted, grant = context_of(request), body or NewSignInLink(), caller(request)
    now = context.database.clock.now()
    seconds = wanted.seconds
    if grant.expires_at is not None:
        # The session begins when the link is used.
        left = (grant.expires_at - now) // SECOND - LINK_SECONDS
        seconds = max(1, min(seconds, left))
    try:
        code, name = context.sessions.create_link(wanted.name, wanted.scopes, seconds)
    except TokenError as error:
        raise Problem(422, "invalid", str(error)) from None
    path, public_url = f"{PATH}/{code}", context.settings.server.public_url
    document = {
        "path": path,
        "url": f"{public_url}{path}" if public_url else None,
        "name": name,
        "scopes": wanted.scopes,
        "expires": to_iso(now + LINK_SECONDS * SECOND),
    }
    return answer(document, 201)
