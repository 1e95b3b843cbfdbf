"""Where the server listens: loopback, unless the configuration says otherwise in so many words."""

import ipaddress
import socket

from agent.config.settings import ServerSettings

_BACKLOG = 1024


class UnsafeBindError(ValueError):
    """The configuration would offer the API to the network without having said so."""


def check_bind(settings: ServerSettings) -> None:
    """Refuse an address beyond this machine unless `allow_remote` is set."""
    if not settings.enabled or settings.allow_remote or is_loopback(settings.host):
        return
    raise UnsafeBindError(
        f"host in [server] is {settings.host!r}, which others can reach; the API then needs"
        " allow_remote = true, and a proxy in front of it that speaks TLS"
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(settings: ServerSettings) -> socket.socket:
    """Return a socket that listens where the configuration says; raise OSError if it cannot."""
    check_bind(settings)
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # By name: asyncio turns off the delay of small packets (40 ms an answer) only where it sees TCP.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.host, settings.port))
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def url_of(listening: socket.socket) -> str:
    """Return the address to type into a client."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
