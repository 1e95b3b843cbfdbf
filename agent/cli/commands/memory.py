"""`agent memory`: lists, searches, shows, adds and forgets what agents remember."""

import sys
from typing import Annotated, Any, Final

import typer

from agent.cli import session
from agent.cli.options import JsonOption
from agent.cli.parameters import Argument, Option

app = typer.Typer(rich_markup_mode=None, help="List, search, add and forget memories of agents.")

ScopeOption = Annotated[
    str | None,
    Option(
        "--scope", metavar="SCOPE", help="workflow:NAME, or a shared scope; default: every scope."
    ),
]
LimitOption = Annotated[int, Option("--limit", "-n", min=1, max=10_000, help="At most this many.")]
ForgottenOption = Annotated[
    bool, Option("--forgotten", help="Also those that were forgotten and not yet deleted.")
]
IdArgument = Annotated[int, Argument(metavar="ID", min=1, help="The number of the memory.")]
_MOST_FOUND: Final = 50
_LINE_CHARS: Final = 100


@app.callback(invoke_without_command=True)
def _by_default(
    context: typer.Context,
    scope: ScopeOption = None,
    limit: LimitOption = 50,
    *,
    forgotten: ForgottenOption = False,
    as_json: JsonOption = False,
) -> None:
    if context.invoked_subcommand is None:
        list_memories(scope, limit, forgotten=forgotten, as_json=as_json)


@app.command("list")
def list_memories(
    scope: ScopeOption = None,
    limit: LimitOption = 50,
    *,
    forgotten: ForgottenOption = False,
    as_json: JsonOption = False,
) -> None:
    """List memories, the newest first."""
    with session.client() as client:
        memories = client.memories(scope, None, limit, has_forgotten=forgotten)
    _print_list(
        memories, "no memories yet: the tool `memory` of an agent writes them", as_json=as_json
    )


@app.command("search")
def search(
    words: Annotated[list[str], Argument(metavar="WORDS", help="The beginnings of words.")],
    scope: ScopeOption = None,
    limit: Annotated[
        int, Option("--limit", "-n", min=1, max=_MOST_FOUND, help="At most this many.")
    ] = 10,
    *,
    as_json: JsonOption = False,
) -> None:
    """Search memories as agents do: the best match first."""
    with session.client() as client:
        memories = client.memories(scope, " ".join(words), limit, has_forgotten=False)
    _print_list(memories, "nothing was found", as_json=as_json)


@app.command("show")
def show(memory: IdArgument, *, as_json: JsonOption = False) -> None:
    """Show a memory, also one that was forgotten and not yet deleted."""
    with session.client() as client:
        document = client.memory(memory)
    _print_one(document, as_json=as_json)


@app.command("add")
def add(
    text: Annotated[str, Argument(metavar="TEXT", help="What to remember; - reads it from stdin.")],
    scope: Annotated[
        str, Option("--scope", metavar="SCOPE", help="workflow:NAME, or a shared scope.")
    ],
    *,
    as_json: JsonOption = False,
) -> None:
    """Remember a text for the agents of a scope."""
    content = sys.stdin.read() if text == "-" else text
    with session.client() as client:
        document = client.add_memory(scope, content)
    _print_one(document, as_json=as_json)


@app.command("forget")
def forget(memory: IdArgument, *, as_json: JsonOption = False) -> None:
    """Forget a memory: no agent finds it again.

    `agent db prune` deletes it.
    """
    from agent.cli.output import terminal

    with session.client() as client:
        document = client.forget_memory(memory)
    if as_json:
        terminal.print_json(document)
    else:
        terminal.print_line(
            f"forgot {document['id']}: {terminal.one_line(document['text'], _LINE_CHARS)}"
        )


def _print_list(memories: list[dict[str, Any]], nothing: str, *, as_json: bool) -> None:
    from agent.cli.output import terminal

    if as_json:
        terminal.print_json(memories)
    elif not memories:
        terminal.print_line(nothing)
    else:
        rows = [_row(memory) for memory in memories]
        terminal.print_table(("id", "scope", "since", "text"), rows)


def _row(memory: dict[str, Any]) -> tuple[str, ...]:
    from agent.cli.output import terminal

    text = terminal.one_line(memory["text"], _LINE_CHARS)
    if memory["forgotten_at"] is not None:
        text = f"(forgotten) {text}"
    return str(memory["id"]), memory["scope"], terminal.ago(memory["created_at"]), text


def _print_one(document: dict[str, Any], *, as_json: bool) -> None:
    from agent.cli.output import terminal

    if as_json:
        terminal.print_json(document)
        return
    origin = document["written_by"]
    if document["task"] is not None:
        origin = f"step {document['step']} of task {terminal.short(document['task'])}"
    terminal.print_line(f"memory {document['id']} in {document['scope']}")
    terminal.print_line(f"  written: {terminal.moment(document['created_at'])} by {origin}")
    if document["forgotten_at"] is not None:
        terminal.print_line(
            f"  forgotten: {terminal.moment(document['forgotten_at'])}; a prune deletes it"
        )
    terminal.print_line(document["text"])
