"""A remote that answers a long poll at once, or closes each connection, is not asked without pause."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web

from agent.channels.chat.command_handler import CommandHandler
from agent.channels.slack import Slack
from agent.channels.telegram.telegram import Telegram
from agent.store.db.database import Database

SECONDS = 1.8
MOST_ROUNDS = 4
"""After pauses of 0.5 and 1 seconds the third round begins."""


async def listen(receive: Callable[[], Awaitable[bool]]) -> None:
    """Listen for some time, as long as the channel is ours."""

    async def go_on() -> None:
        while await receive():
            pass

    with suppress(TimeoutError):
        async with asyncio.timeout(SECONDS):
            await go_on()


class Api:
    """The Bot API behind a proxy that waits for nothing."""

    bot_id = "4711"

    def __init__(self, updates: list[list[dict[str, Any]]]) -> None:
        self.updates = updates
        self.polls = 0

    async def call(self, method: str, **_: Any) -> Any:
        assert method == "getUpdates"
        self.polls += 1
        await asyncio.sleep(0)
        return self.updates.pop(0) if len(self.updates) > 1 else self.updates[0]


def telegram(database: Database, api: Api, poll_seconds: int) -> Telegram:
    """Return a bot that speaks to this API."""
    return Telegram(database, api, CommandHandler(database, 100), poll_seconds)  # type: ignore[arg-type]


@pytest.mark.parametrize("poll_seconds", [0, 25])
@pytest.mark.parametrize(
    "answer",
    [[], [{"no": "id"}], [{"update_id": 7, "edited": {}}]],
    ids=["nothing", "nonsense", "the same again"],
)
def test_long_polls_that_return_at_once(
    answer: list[dict[str, Any]], poll_seconds: int, sqlite_database: Database
) -> None:
    """A few requests instead of thousands."""
    api = Api([answer])
    asyncio.run(listen(telegram(sqlite_database, api, poll_seconds).receive))
    assert 1 < api.polls <= MOST_ROUNDS + 1


def test_messages_are_taken_without_a_pause(sqlite_database: Database) -> None:
    """What brings news is asked again at once."""
    news = [[{"update_id": number, "edited": {}}] for number in range(100)]
    api = Api([*news, []])
    asyncio.run(listen(telegram(sqlite_database, api, 25).receive))
    assert api.polls > len(news)


def test_connections_that_are_closed_at_once(sqlite_database: Database) -> None:
    """A few connections instead of thousands."""
    counted: Counter[str] = Counter()

    async def answer(request: web.Request) -> web.StreamResponse:
        counted[request.path] += 1
        if request.path == "/socket":
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await socket.close()
            return socket
        url = f"ws://127.0.0.1:{request.url.port}/socket"
        return web.json_response({"ok": True, "team_id": "T1", "url": url})

    async def main() -> None:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        slack = Slack(
            sqlite_database,
            CommandHandler(sqlite_database, 100),
            api_url=f"http://127.0.0.1:{port}/api",
            bot_token="xoxb",
            app_token="xapp",
        )
        await listen(slack.receive)
        await slack.close()
        await runner.cleanup()

    asyncio.run(main())
    assert 1 < counted["/socket"] <= MOST_ROUNDS
