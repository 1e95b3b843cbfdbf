"""`agent open`: the dashboard in a browser, signed in."""

from typing import Annotated

from agent.cli import invocation, session
from agent.cli.options import JsonOption
from agent.cli.parameters import Option


def open_dashboard(
    scope: Annotated[
        list[str] | None,
        Option("--scope", help="read, operate, approve or admin; may be repeated."),
    ] = None,
    name: Annotated[
        str,
        Option("--name", metavar="NAME", help="The session's name: answers are page:NAME."),
    ] = "browser",
    expires: Annotated[
        str, Option("--expires", metavar="DURATION", help="When the session ends, as in 12h.")
    ] = "30d",
    *,
    qr: Annotated[bool, Option("--qr", help="Print the link as a QR code, for a phone.")] = False,
    print_only: Annotated[
        bool, Option("--print", help="Print the link, and open no browser.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Open the dashboard in a browser, signed in.

    The link works once, and for a minute. `agent token list` shows the sessions. With --server it
    is the dashboard of that agent, and the token needs the scope admin.
    """
    from agent.cli.commands.token import duration_seconds
    from agent.cli.output import terminal

    session.require_person("open the dashboard")
    make = _remote_link if invocation.server_url() else _local_link
    link, session_name = make(name, scope or ["admin"], int(duration_seconds(expires)))
    if qr:
        _warn_of_local(link)
    if as_json:
        terminal.print_json({"url": link, "name": session_name, "scopes": scope or ["admin"]})
        return
    if qr:
        import segno

        segno.make(link, error="m").terminal(compact=True)
    if not (qr or print_only) and _opens(link):
        terminal.note(f"opened in a browser as the session {session_name!r}")
        return
    terminal.note("open this within a minute; it works once:")
    terminal.print_line(link)


def _local_link(name: str, scopes: list[str], seconds: int) -> tuple[str, str]:
    """Return a link to the agent of this machine, and the name of its session."""
    from agent.cli import other_agents
    from agent.cli.output import terminal
    from agent.daemon.instance_file import running_instance
    from agent.server.access.one_time_links import new_link

    settings = session.settings()
    other_agents.require_agent(settings)
    instance = running_instance(settings.home)
    bound_url = None if instance is None else instance.api
    link, session_name = new_link(settings, name, scopes, seconds=seconds, bound_url=bound_url)
    session.audit("open", session_name, scopes=scopes)
    if instance is None:
        terminal.note(other_agents.no_agent(settings, "starts it"))
    return link, session_name


def _remote_link(name: str, scopes: list[str], seconds: int) -> tuple[str, str]:
    """Return a link to the agent of `--server`: at its public address, else at the one given here."""
    connection, url = session.remote(), invocation.server_url()
    assert connection is not None
    assert url is not None
    try:
        wanted = {"name": name, "scopes": scopes, "seconds": seconds}
        link = connection.post("sign-in-links", wanted)
    finally:
        connection.close()
    return link["url"] or url.rstrip("/") + link["path"], link["name"]


def _opens(link: str) -> bool:
    """Open the link in the browser of this desktop; return False where there is none."""
    import os
    import sys
    import webbrowser

    has_desktop = sys.platform == "darwin" or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )
    if not has_desktop:
        return False
    try:
        return webbrowser.open(link)
    except webbrowser.Error:
        return False


def _warn_of_local(link: str) -> None:
    """Say that a phone cannot reach an address of this machine."""
    from agent.cli.output import terminal

    if link.startswith(("http://127.", "http://localhost", "http://[::1]")):
        terminal.note(
            "this address is of this machine alone: a phone needs public_url in [server], as of a"
            " proxy or a VPN"
        )
