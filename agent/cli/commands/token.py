"""`agent token`: tokens of the HTTP API, and sessions of browsers."""

from typing import TYPE_CHECKING, Annotated

import typer

from agent.cli import session
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.server.access.sessions import Sessions
    from agent.server.access.tokens import Tokens

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create, list and revoke tokens and browser sessions.",
)
NameArgument = Annotated[str, Argument(metavar="NAME", help="The token's name.")]


@app.command("create")
def create(
    name: NameArgument,
    scope: Annotated[
        list[str],
        Option("--scope", help="read, operate, approve or admin; may be repeated."),
    ],
    *,
    expires: Annotated[
        str | None,
        Option("--expires", metavar="DURATION", help="When it expires, as in 90d."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token and print it once."""
    from agent.cli import other_agents
    from agent.cli.output import terminal
    from agent.core.clock import SECOND, Clock, to_iso

    session.require_person("create a token")
    other_agents.require_agent(session.settings())
    now = Clock().now()
    ends = None if expires is None else to_iso(now + int(duration_seconds(expires) * SECOND))
    token = _tokens().create(name, scope, to_iso(now), ends)
    session.audit("token create", name, scopes=scope, expires=ends)
    if as_json:
        terminal.print_json({"name": name, "scopes": scope, "expires": ends, "token": token})
        return
    until = "" if ends is None else f", valid until {ends}"
    terminal.note(f"the token {name!r}{until}; it is not stored and cannot be shown again:")
    terminal.print_line(token)


@app.command("list")
def list_tokens(*, as_json: JsonOption = False) -> None:
    """List tokens and sessions, without the owner's token."""
    from agent.cli.output import terminal

    tokens = [{**token, "kind": "token"} for token in _tokens().listed()]
    tokens += [{**session, "kind": "session"} for session in _sessions().listed()]
    if as_json:
        terminal.print_json(tokens)
        return
    if not tokens:
        terminal.print_line(f"no tokens but the owner's, in {_tokens().owner_file}")
        return
    terminal.print_table(
        ("name", "kind", "scopes", "created", "expires"),
        [
            (
                token["name"],
                token["kind"],
                ", ".join(token["scopes"]),
                terminal.moment(token["created_at"]),
                terminal.moment(token["expires"]) or "never",
            )
            for token in tokens
        ],
    )


@app.command("revoke")
def revoke(name: NameArgument, *, as_json: JsonOption = False) -> None:
    """Revoke a token, or end the session of a browser."""
    from agent.cli.output import terminal

    is_session = any(listed["name"] == name for listed in _sessions().listed())
    _sessions().revoke(name) if is_session else _tokens().revoke(name)
    session.audit("token revoke", name)
    if as_json:
        terminal.print_json({"name": name, "revoked": True})
    else:
        terminal.print_line(f"{name!r} is revoked")


def duration_seconds(text: str) -> float:
    """Return the duration that `--expires` gives."""
    from agent.cli.errors import CommandError
    from agent.workflows.durations import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise CommandError(f"--expires {text}: {error}") from None
    if seconds <= 0:
        raise CommandError(f"--expires {text}: it must be greater than zero")
    return seconds


def _tokens() -> "Tokens":
    from agent.config.file_exposure import trust_of
    from agent.server.access.tokens import Tokens

    settings = session.settings()
    return Tokens(settings.home, trust_of(settings))


def _sessions() -> "Sessions":
    from agent.config.file_exposure import trust_of
    from agent.server.access.sessions import Sessions

    settings = session.settings()
    return Sessions(settings.home, trust_of(settings))
