"""The address of an agent, and the token for it: from options, the environment and files."""

import ipaddress
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent.cli.errors import CommandError, Exit

if TYPE_CHECKING:
    from agent.config.settings import Settings


def remote_agent(
    url: str, settings: "Settings", notify: Callable[[str], None]
) -> tuple[str, str, bool]:
    """Return the base URL of an agent, the token for it, and whether it is on this machine."""
    base, is_here = checked(url)
    own_token = token(settings, is_here=is_here)
    if base.startswith("http:") and not is_here:
        notify("agent: the token travels unencrypted: use https")
    return base, own_token, is_here


def checked(url: str) -> tuple[str, bool]:
    """Return the base URL of an address, and whether it is on this machine."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    try:
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or parts.query or parts.fragment:
        raise CommandError(f"--server {url}: write it as http://127.0.0.1:8420")
    if parts.username is not None or parts.password is not None:
        raise CommandError(
            "--server: the address must not hold a token; use AGENT_TOKEN or AGENT_TOKEN_FILE"
        )
    path = parts.path.rstrip("/").removesuffix("/api/v1")
    return f"{parts.scheme}://{parts.netloc}{path}", _is_here(parts.hostname or "")


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token(settings: "Settings", *, is_here: bool) -> str:
    """Return the token from the environment or a file; the owner's token is used only locally."""
    value = os.environ.get("AGENT_TOKEN", "").strip()
    named = os.environ.get("AGENT_TOKEN_FILE")
    file = Path(named) if named else settings.home / "token"
    if not value and (named or is_here):
        try:
            value = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            if named:
                raise CommandError(f"AGENT_TOKEN_FILE: {error}") from None
    if not value or not value.isascii() or not value.isprintable():
        raise CommandError(
            "no token: set AGENT_TOKEN to the token, or AGENT_TOKEN_FILE to the file that holds it"
        )
    return value


def running_agent(settings: "Settings") -> str:
    """Return the address of the agent that runs here: work is claimed through its HTTP API."""
    from agent.cli import invocation
    from agent.daemon.instance_file import running_instance

    instance = running_instance(settings.home)
    if instance is None:
        raise CommandError(
            "no agent runs here, and steps are claimed from a running one: start it with"
            f" `{invocation.program()} up`, or name another with --server",
            Exit.NO_DATABASE,
        )
    if instance.api is None:
        raise CommandError(
            "the running agent has no HTTP API, and steps are claimed through it: set"
            " server.enabled = true in its configuration and restart it",
            Exit.NO_DATABASE,
        )
    return instance.api
