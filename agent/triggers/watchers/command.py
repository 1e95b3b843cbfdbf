"""The source `command`: a program that prints one JSON object a line, each with a `key`.

A line `{"cursor": …}` sets the cursor that the next run finds in the variable `AGENT_CURSOR`: a text
as it is, any other value as JSON; the first run has no such variable. Without that line the cursor
stays. Of lines with the same key the first counts. The program runs beside the workflow file, and its
environment is that of a `shell` step. It must not change anything: a poll may be repeated at any
time, and what it found may be discarded.
"""

import json
from typing import Any, Final, NoReturn

from agent.steps.attempt.secrets import Secrets, references
from agent.steps.process.environment import environment_of_watcher
from agent.steps.types.errors import DefiniteFailure
from agent.triggers.watchers import program
from agent.triggers.watchers.item_checks import collect, cursor_of, for_people, storable
from agent.triggers.watchers.source import Json, Poll, PollContext, Source, SourceError

CURSOR: Final = "AGENT_CURSOR"


def open_source(keys: dict[str, Any]) -> Source:
    """Return the source of a compiled `command` mapping."""
    return CommandSource(keys)


class CommandSource:
    """One run of the program a poll."""

    def __init__(self, keys: dict[str, Any]) -> None:
        self._argv: list[str] = list(keys["argv"])
        self._env: dict[str, str] = dict(keys.get("env") or {})
        self._cwd: str | None = keys.get("cwd")

    async def poll(self, cursor: Json, context: PollContext) -> Poll:
        """Run the program and read its lines."""
        own = await _resolved(self._env)
        if cursor is not None:
            own[CURSOR] = cursor if isinstance(cursor, str) else json.dumps(cursor)
        completed = await program.run(
            program.Program(
                name=f"the command {storable(self._argv[0])}",
                argv=self._argv,
                env=environment_of_watcher(own, context.limits.inherit),
                cwd=program.directory_beside(self._cwd, context.workflow_path),
                most_bytes=context.limits.response_bytes,
            ),
            context,
        )
        return _read(completed.stdout, cursor, context.most_items)


async def _resolved(env: dict[str, str]) -> dict[str, str]:
    try:
        resolved: dict[str, str] = await Secrets().read(env, frozenset(references(env)))
    except DefiniteFailure as error:
        raise SourceError(f"env: {error}") from None
    return dict(resolved)


def _read(stdout: bytes, cursor: Json, most_items: int) -> Poll:
    reported: list[tuple[str, Any]] = []
    for number, line in enumerate(stdout.split(b"\n"), start=1):
        if not line.strip():
            continue
        where = f"line {number} of the output"
        value = _parse(line, where)
        if isinstance(value, dict) and value.keys() == {"cursor"}:
            cursor = cursor_of(value["cursor"], where)
        else:
            reported.append((where, value))
    return Poll(collect(reported, most_items), cursor)


def _parse(line: bytes, where: str) -> Any:
    try:
        return json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        shown = for_people(line.decode("utf-8", "replace"))[:200]
        raise SourceError(f"{where} is not JSON ({for_people(str(error))}): {shown}") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
