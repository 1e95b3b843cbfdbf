"""How soon a step goes on after an answer, from each channel: measured, printed, and bounded.

On an idle machine the median is far below a tenth of a second; the bound here only catches an
answer that waits for a safety net.
"""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import httpx
import pytest

from agent.channels.link_signing import key_of, link_token
from agent.config.channels import ChannelSettings, WebhookSettings
from agent.core.clock import SECOND
from agent.store.db.database import Database
from agent.tasks.operator.operator import Operator
from agent.tasks.rules.creation import Submission
from tests.support.approvals import asked, gated, one_step, token
from tests.support.chat import Chat
from tests.support.chat_server import shown_to
from tests.support.engine import eventually
from tests.support.server import Running
from tests.support.step_functions import runs
from tests.support.webhook_receiver import SECRET

BOTH = pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
ANSWERS = 5
MOST_SECONDS = 1.0

pytestmark = pytest.mark.measured


def _seconds(give: Callable[[], object], counted: str) -> float:
    # So that nothing is under way: what is measured is an agent that sleeps.
    time.sleep(0.15)
    start = time.perf_counter()
    give()
    while not runs[counted]:
        assert time.perf_counter() - start < 60
        time.sleep(0.0005)
    return time.perf_counter() - start


def _report(capsys: pytest.CaptureFixture[str], name: str, found: list[float]) -> None:
    middle = median(found)
    with capsys.disabled():
        # Printed for the person who runs it.
        print(f"\nanswer to resumed step, {name}: {middle * 1000:.0f} ms")  # noqa: T201
    assert middle < MOST_SECONDS


@BOTH
def test_from_a_button(chat: Chat, capsys: pytest.CaptureFixture[str]) -> None:
    """Pressed in a chat."""
    ada = chat.pair()
    found = []
    for _ in range(ANSWERS):
        counted = token()
        _, approval = asked(chat.engine, gated("pay", counted))
        shown = shown_to(
            chat.peer,
            ada,
            lambda each: approval["id"][-8:] in each.text and bool(each.buttons),  # noqa: B023
        )
        press = shown.buttons["Approve"]
        found.append(_seconds(lambda: chat.peer.press(ada, press), counted))  # noqa: B023
    kind = "SQLite" if chat.engine.database.is_sqlite else "PostgreSQL"
    _report(capsys, f"{chat.peer.name}, {kind}", found)


@BOTH
@pytest.mark.parametrize("way", ["api", "link"])
def test_from_a_request(
    database: Database, way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given through the HTTP API, or by the form behind a link."""
    (tmp_path / "secret").write_text(SECRET)
    webhook = WebhookSettings(secret=f"file:{tmp_path}/secret")
    running = Running(database, tmp_path)
    running.settings = running.settings.model_copy(
        update={"channels": ChannelSettings(webhook=webhook)}
    )
    found = []
    with running, running.client() as client:
        for _ in range(ANSWERS):
            graph, counted = one_step()
            task_id = Operator(database, database.clock).submit(Submission(graph=graph))
            approval = eventually(lambda: _pending(client, task_id))[0]["id"]  # noqa: B023
            now = int(time.time()) * SECOND
            link = f"/links/{link_token(key_of(SECRET), approval, now + 600 * SECOND)}"
            given = (
                (lambda: client.post(f"/api/v1/approvals/{approval}/approve"))  # noqa: B023
                if way == "api"
                else (lambda: client.post(link, data={"decision": "approve"}))  # noqa: B023
            )
            found.append(_seconds(given, counted))
    _report(capsys, f"{way}, {'SQLite' if database.is_sqlite else 'PostgreSQL'}", found)


def _pending(client: httpx.Client, task_id: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = client.get("/api/v1/approvals", params={"task": task_id}).json()[
        "approvals"
    ]
    return found
