"""`Idempotency-Key`: the same request under the same key is the same task, however often it comes.

The key and the hash of its request are on record before the task is created, and the task carries
the key: two that race make one task, and a crash between the two leaves a key that the repetition
goes on from.
"""

import asyncio
import re
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Header

from agent.core.ids import content_hash, request_hash
from agent.server.db_pool import DbPool
from agent.server.problems import Problem, retry_later
from agent.server.tokens import TokenGrant
from agent.store import idempotency_keys
from agent.store.db.database import Database
from agent.store.idempotency_keys import Claim

PATIENCE_SECONDS: Final = 5.0
"""How long a key waits to be put on record before its request is refused."""
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Up to 255 visible characters: a repetition under the same key changes nothing.",
        examples=["8e03978e-40d5-43dd-bc93-6894a57f9324"],
    ),
]


class IdempotencyKeys:
    """Puts keys on record: in one commit as many as came while the last one was made."""

    def __init__(self, database: Database, command_pool: DbPool) -> None:
        self._database = database
        self._command_pool = command_pool
        self._waiting: list[tuple[Claim, asyncio.Future[tuple[str, str]]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def dedupe_key(
        self, grant: TokenGrant, key: str | None, address: str, asked: Any
    ) -> str | None:
        """Return what makes a request's task the only one under its key; refuse another request."""
        if key is None:
            return None
        if not _KEY.fullmatch(key):
            raise Problem(422, "invalid", "Idempotency-Key: 1 to 255 visible ASCII characters")
        wanted = request_hash([address, asked])
        # Each token has keys of its own: no other token learns of them, or takes one.
        own = f"request:{request_hash([grant.name, key])}"
        # Keys of earlier versions: `bob` with `ci:1` had the same as `bob:ci` with `1`. They are
        # forgotten with the tasks of their time; until then a repetition finds its task.
        earlier = f"request:{content_hash(f'{grant.name}:{key}')}"
        is_sure = ":" not in grant.name and ":" not in key
        claimed, first = await self._claim(Claim(own, wanted, earlier, is_sure))
        if first != wanted:
            raise Problem(
                422, "key-reused", "this Idempotency-Key came with another request before"
            )
        return claimed

    async def _claim(self, claim: Claim) -> tuple[str, str]:
        known: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
        self._waiting.append((claim, known))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await known
        except TimeoutError:
            raise retry_later(
                503, "unavailable", "the database is busy; nothing was created", 5
            ) from None

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            asked = [each for each, _ in batch]
            try:
                found: list[tuple[str, str] | Exception] = [
                    *await self._command_pool.run(partial(self._record, asked))
                ]
            except Exception as error:
                found = [error] * len(batch)
            for (_, known), result in zip(batch, found, strict=True):
                if known.done():
                    continue
                if isinstance(result, Exception):
                    known.set_exception(result)
                else:
                    known.set_result(result)

    def _record(self, asked: list[Claim]) -> list[tuple[str, str]]:
        return idempotency_keys.claim(self._database, asked, self._database.clock.now())
