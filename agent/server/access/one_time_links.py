"""One-time links to the dashboard: for the command line's `agent open` and the chats' `/open`."""

from collections.abc import Callable, Iterable
from typing import Final

from agent.approvals.permission import Principal
from agent.config.file_exposure import trust_of
from agent.config.settings import Settings
from agent.core.scopes import SCOPES
from agent.server.access.grants import TokenError
from agent.server.access.sessions import LINK_SECONDS, SESSION_SECONDS, Sessions
from agent.tasks.errors import RefusedError

PATH: Final = "/sign-in"
_ANY_ADDRESS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  (where to go, not to listen)


def address_of(settings: Settings, bound_url: str | None = None) -> str:
    """Return the address of the dashboard: the public one, else that of this machine.

    `bound_url` is the address that a running server listens on; a command does not know it.
    """
    server = settings.server
    if not server.enabled:
        raise TokenError("there is no dashboard: enabled is false in [server]")
    if server.public_url:
        return server.public_url
    if bound_url is not None:
        return bound_url
    if server.port == 0:
        raise TokenError("port is 0 in [server], so no link can name it: set port or public_url")
    host = _ANY_ADDRESS.get(server.host, server.host)
    return f"http://[{host}]:{server.port}" if ":" in host else f"http://{host}:{server.port}"


def new_link(
    settings: Settings,
    name: str,
    scopes: Iterable[str],
    *,
    seconds: int = SESSION_SECONDS,
    bound_url: str | None = None,
) -> tuple[str, str]:
    """Return a new link and the name of the session that it begins."""
    address = address_of(settings, bound_url)
    code, session = Sessions(settings.home, trust_of(settings)).create_link(name, scopes, seconds)
    return f"{address}{PATH}/{code}", session


def chat_links(settings: Settings, bound_url: str | None = None) -> Callable[[Principal], str]:
    """Return the function that answers `/open`: a link with the scopes of the person who asks."""

    def answer(principal: Principal) -> str:
        scopes = [scope for scope in SCOPES if scope in principal.scopes]
        try:
            link, _ = new_link(settings, principal.channel, scopes, bound_url=bound_url)
        except TokenError as error:
            raise RefusedError(str(error)) from None
        text = f"{link}\nIt works once, and for {LINK_SECONDS} seconds."
        if not settings.server.public_url:
            text += " It opens on the agent's own machine; public_url in [server] names another."
        return text

    return answer
