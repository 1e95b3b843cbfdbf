"""`Idempotency-Key`: the same request under the same key always returns the same task.

The key and the hash of its request are committed before the task is created, and the task stores
the key. Two racing requests then create one task, and after a crash between the two commits a
repeated request continues from the key.
"""

import asyncio
import re
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Header

from agent.core.ids import content_hash, request_hash
from agent.server.access.grants import TokenGrant
from agent.server.db_pool import DbPool
from agent.server.problems import Problem, retry_later
from agent.store import idempotency_keys
from agent.store.db.database import Database
from agent.store.idempotency_keys import KeyedRequest

CLAIM_TIMEOUT_SECONDS: Final = 5.0
"""How long a key waits for its commit before the server refuses the request."""
_KEY: Final = re.compile(r"[\x21-\x7e]{1,255}")

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Up to 255 visible characters. Repeating a request under its key changes nothing.",
        examples=["8e03978e-40d5-43dd-bc93-6894a57f9324"],
    ),
]


class IdempotencyKeys:
    """Records keys, batched: one commit takes all that arrived during the one before."""

    def __init__(self, database: Database, command_pool: DbPool) -> None:
        self._database = database
        self._command_pool = command_pool
        self._waiting: list[tuple[KeyedRequest, asyncio.Future[tuple[str, str]]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def dedupe_key(
        self, grant: TokenGrant, key: str | None, address: str, body: Any
    ) -> str | None:
        """Return the dedupe key for a request's task; refuse a key used for another request."""
        if key is None:
            return None
        if not _KEY.fullmatch(key):
            raise Problem(422, "invalid", "Idempotency-Key: 1 to 255 visible ASCII characters")
        wanted_hash = request_hash([address, body])
        # Keys are separate per token: no other token can read or take one.
        own_key = f"request:{request_hash([grant.name, key])}"
        # Earlier versions built the key differently, and `bob` with `ci:1` collided with `bob:ci`
        # with `1`. Until those keys are pruned, a repeated request must still find its task.
        earlier_key = f"request:{content_hash(f'{grant.name}:{key}')}"
        is_sure = ":" not in grant.name and ":" not in key
        dedupe_key, first_hash = await self._claim(
            KeyedRequest(own_key, wanted_hash, earlier_key, is_sure)
        )
        if first_hash != wanted_hash:
            raise Problem(
                422, "key-reused", "this Idempotency-Key was already used for another request"
            )
        return dedupe_key

    async def _claim(self, claim: KeyedRequest) -> tuple[str, str]:
        result: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
        self._waiting.append((claim, result))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        try:
            async with asyncio.timeout(CLAIM_TIMEOUT_SECONDS):
                return await result
        except TimeoutError:
            raise retry_later(
                503, "unavailable", "the database is busy; nothing was created", 5
            ) from None

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            claims = [claim for claim, _ in batch]
            try:
                results: list[tuple[str, str] | Exception] = [
                    *await self._command_pool.run(partial(self._record, claims))
                ]
            except Exception as error:
                results = [error] * len(batch)
            for (_, future), result in zip(batch, results, strict=True):
                if future.done():
                    continue
                if isinstance(result, Exception):
                    future.set_exception(result)
                else:
                    future.set_result(result)

    def _record(self, claims: list[KeyedRequest]) -> list[tuple[str, str]]:
        return idempotency_keys.claim(self._database, claims, self._database.clock.now())
