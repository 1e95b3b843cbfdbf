"""Every commit of a task that sends messages fails once: no message is lost in silence.

What arrived twice at the Bot API is explained by the ledger: an unknown call came before it.
"""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.channels.messages.messenger import ChannelMessenger
from agent.config.channels import NotifySettings
from agent.config.settings import Settings
from agent.tasks.worker import failures
from agent.tasks.worker.worker import Worker
from agent.workflows.graph import RetryPolicy, Step
from tests.crash.faults import Way
from tests.crash.fresh_databases import Fresh, fresh  # noqa: F401  (a fixture by its name)
from tests.crash.shapes import Shape
from tests.crash.story import Story
from tests.support.effort import short_or_full
from tests.support.telegram_server import BotServer

MOST_COMMITS = 100
STRIDE = short_or_full(2, 1)
"""In short form a way fails every second commit, and the next way the others."""
WAYS = [Way.DIED_BEFORE, Way.DIED_AFTER, Way.LANDED_UNHEARD, Way.LOST_UNHEARD]
_PATIENT = RetryPolicy(max_attempts=20, delay_seconds=0, jitter=False)


def _say(name: str, to: str | list[str], *after: str) -> Step:
    config = {"text": f"the message {name}", "to": to}
    return Step(name=name, kind="message", config=config, depends_on=list(after), retry=_PATIENT)


SHAPE = Shape(
    [
        _say("first", ["telegram:1", "telegram:2"]),
        _say("second", "operator", "first"),
        _say("third", ["terminal:ada", "telegram:1"], "second"),
    ],
    once=[],
)
ARRIVALS = {
    ("1", "the message first"),
    ("2", "the message first"),
    ("3", "the message second"),
    ("1", "the message third"),
}


class MessageStory(Story):
    """A task that sends messages to a stand-in of Telegram."""

    def __init__(self, server: BotServer, url: str, at: int | None, way: Way) -> None:
        super().__init__(url, SHAPE, at, way)
        self.server = server
        server.messages.clear()
        self.settings = Settings(
            channels=server.settings(), notify=NotifySettings(operator=["telegram:3"])
        )
        self.doubled = 0

    def _worker(self) -> Worker:
        worker = super()._worker()
        worker.services.messenger = ChannelMessenger(self.settings, self.database)
        return worker

    def check(self) -> None:
        """Check that all arrived, and that the ledger explains what arrived twice."""
        super().check()
        arrived = Counter((each.recipient, each.text) for each in self.server.messages)
        assert set(arrived) == ARRIVALS, self.describe()
        unknown = Counter(
            (document["to"].partition(":")[2], document["text"])
            for (request,) in self._rows(
                "SELECT c.request FROM tool_calls AS c JOIN idempotency_outcomes AS o"
                " ON o.tool_call_id = c.id WHERE o.status = 'unknown' AND c.task_id = :id",
                id=self.task_id,
            )
            if (document := json.loads(request)) is not None
        )
        for message, count in arrived.items():
            assert count - 1 <= unknown[message], (message, count, self.describe())
            self.doubled += count - 1
        rows = self._rows(
            "SELECT recipient, text FROM terminal_messages WHERE task_id = :id", id=self.task_id
        )
        assert rows == [("ada", "the message third")], "the terminal's own rows are exactly once"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BotServer]:
    """Return one stand-in of the Bot API for all stories."""
    bot = BotServer(Path(tmp_path_factory.mktemp("bot")))
    yield bot
    bot.close()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers retry sooner than they would: the faults here do not last."""
    monkeypatch.setattr(failures, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(failures, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.mark.parametrize(
    "way",
    WAYS,
    ids=lambda way: way.name.lower(),
)
def test_a_fault_at_each_commit_of_messages(
    way: Way,
    server: BotServer,
    fresh: Fresh,  # noqa: F811
) -> None:
    """Whichever commit fails, every message arrives, and one that arrives twice was unknown."""
    doubled = 0
    for at in range(1 + WAYS.index(way) % STRIDE, MOST_COMMITS, STRIDE):
        story = MessageStory(server, fresh(), at, way)
        has_happened = story.run()
        doubled += story.doubled
        if not has_happened:
            break
    else:
        raise AssertionError("it did not end")
    assert at > 8
    if way == Way.DIED_BEFORE:
        assert doubled > 0, "a process that died before it recorded the answer sends again"


@pytest.mark.parametrize("way", [Way.DIED_BEFORE, Way.DIED_AFTER], ids=lambda way: way.name.lower())
def test_a_fault_at_some_commits_of_messages_on_postgresql(
    way: Way, server: BotServer, postgres_url: str
) -> None:
    """The same holds on PostgreSQL, for a sample."""
    happened = [MessageStory(server, postgres_url, at, way).run() for at in (1, 2, 3)]
    assert any(happened)
