"""Every commit of a task that sends a mail fails once: none is lost in silence, none is doubled."""

import itertools
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.approvals.answering import Verdict
from agent.core.plain_json import Json
from agent.steps.attempt.services import Limits
from agent.tasks.errors import RefusedError
from agent.tasks.worker import failures
from agent.tasks.worker.worker import Worker
from agent.workflows.graph import OnUnknown, Step
from tests.crash.faults import Way
from tests.crash.shapes import AT_ONCE, Shape
from tests.crash.story import SETTINGS, Story
from tests.support.approvals import resolve
from tests.support.imap_server import ImapServer, imap_server
from tests.support.mail_steps import LOOPBACK, imap_of, sent_ids
from tests.support.smtp_server import PASSWORD, Received, SmtpServer, account, smtp_server

MOST_COMMITS = 50

Fresh = Callable[[], str]


@pytest.fixture
def fresh(sqlite_template: Path, tmp_path: Path) -> Fresh:
    """Return a function that makes a new, migrated SQLite database."""
    numbers = itertools.count()

    def make() -> str:
        path = tmp_path / f"{next(numbers)}.db"
        shutil.copyfile(sqlite_template, path)
        return f"sqlite:///{path}"

    return make


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers retry sooner than they would: the faults here do not last."""
    monkeypatch.setattr(failures, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(failures, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setenv("MAIL_PASSWORD", PASSWORD)


@pytest.fixture(scope="module")
def server() -> Iterator[SmtpServer]:
    """Run one server for all tests here."""
    with smtp_server() as running:
        yield running


@pytest.fixture(scope="module")
def imap() -> Iterator[ImapServer]:
    """Run one mailbox for all tests here."""
    with imap_server() as running:
        with running.account() as box:
            box.folder.create("Sent")
        yield running


class MailStory(Story):
    """A task that sends one mail, through a fault and the recovery."""

    def __init__(
        self,
        url: str,
        at: int | None,
        way: Way,
        server: SmtpServer,
        imap: ImapServer | None,
        on_unknown: OnUnknown | None = None,
        **keys: Any,
    ) -> None:
        config = {
            "to": "bob@example.org",
            "subject": "{{ task.id }}",
            "text": "Once.",
            **keys,
        }
        step = Step(name="it", kind="mail", config=config, retry=AT_ONCE, on_unknown=on_unknown)
        super().__init__(url, Shape([step], once=[]), at, way)
        self.server = server
        self.imap = imap
        self.questions = 0
        self.calls: list[tuple[str, str]] = []
        """Action and status of each call of the step, at the end."""
        server.on_received = self._receive
        self.is_killed_on_arrival = False

    def _receive(self, received: Received) -> None:
        if received.message["Subject"] != self.task_id:
            return
        if self.imap is not None and self.is_filed:
            self.imap.deliver(received.raw, folder="Sent")
        if self.is_killed_on_arrival:
            # The process ends between the mail's acceptance and the record of it.
            self.is_killed_on_arrival = False
            self.database.has_happened = True
            self.database.is_dead = True

    is_filed = True
    """Whether the server files what is sent, as some providers do."""

    def _worker(self) -> Worker:
        mailbox = {} if self.imap is None else {"imap": imap_of(self.imap)}
        return Worker(
            self.database,
            SETTINGS,
            self.clock,
            Limits(allow_private=LOOPBACK),
            mail={"main": account(self.server.port, **mailbox)},
        )

    @property
    def arrived(self) -> list[Received]:
        """The mails of this task that the server accepted."""
        return [each for each in self.server.received if each.message["Subject"] == self.task_id]

    def _answer(self, task_id: str, title: str, call_id: str) -> None:
        self.questions += 1
        try:
            verdict: tuple[Verdict, Json] = ("done", 1) if self.arrived else ("retry", None)
            resolve(self.plain, task_id, title, *verdict, clock=self.clock)
        except RefusedError:
            # Its late result came first.
            return

    def check(self) -> None:
        super().check()
        self.calls = [
            (action.partition("#")[0], status)
            for action, status in self._rows(
                "SELECT c.action, o.status FROM tool_calls AS c JOIN idempotency_outcomes AS o"
                " ON o.tool_call_id = c.id WHERE c.task_id = :id ORDER BY c.id",
                id=self.task_id,
            )
        ]


@pytest.mark.parametrize(
    "way",
    [Way.DIED_BEFORE, Way.DIED_AFTER, Way.LANDED_UNHEARD, Way.LOST_UNHEARD],
    ids=lambda way: way.name.lower(),
)
def test_with_a_mailbox_nothing_arrives_twice(
    way: Way, fresh: Fresh, server: SmtpServer, imap: ImapServer
) -> None:
    """The sent folder, or a person where it shows nothing, decides: exactly one mail arrives."""
    for at in range(1, MOST_COMMITS):
        story = MailStory(fresh(), at, way, server, imap)
        has_happened = story.run()
        assert len(story.arrived) == 1, story.describe()
        if not has_happened:
            break
    else:
        raise AssertionError("it did not end")
    assert at > 2


def test_a_kill_between_the_acceptance_and_the_record(
    fresh: Fresh, server: SmtpServer, imap: ImapServer
) -> None:
    """The sent folder shows that it arrived: no person is asked, and nothing is sent again."""
    story = MailStory(fresh(), None, Way.REFUSED, server, imap)
    story.is_killed_on_arrival = True
    assert story.run()
    assert len(story.arrived) == 1
    assert (story.lives, story.questions) == (2, 0)
    assert story.calls == [("mail.send", "succeeded")]


def test_a_kill_where_the_server_files_nothing_asks(
    fresh: Fresh, server: SmtpServer, imap: ImapServer
) -> None:
    """A mail that is not in the sent folder stays unknown until a person answers."""
    story = MailStory(fresh(), None, Way.REFUSED, server, imap)
    story.is_filed = False
    story.is_killed_on_arrival = True
    assert story.run()
    assert len(story.arrived) == 1
    assert story.questions >= 1


@pytest.mark.parametrize("way", [Way.DIED_BEFORE, Way.DIED_AFTER])
def test_a_mail_that_is_repeated_is_the_same_mail(
    way: Way, fresh: Fresh, server: SmtpServer
) -> None:
    """With `on_unknown: retry` every copy has the same id, and a row of the ledger explains it."""
    for at in range(1, MOST_COMMITS):
        story = MailStory(fresh(), at, way, server, None, on_unknown="retry")
        has_happened = story.run()
        arrived = story.arrived
        assert arrived
        assert len({each.message["Message-ID"] for each in arrived}) == 1
        assert len(arrived) <= len(story.calls)
        if not has_happened:
            break
    story = MailStory(fresh(), None, way, server, None, on_unknown="retry")
    story.is_killed_on_arrival = True
    story.run()
    assert len(story.arrived) == len(story.calls) == 2
    assert len({each.message["Message-ID"] for each in story.arrived}) == 1


@pytest.mark.parametrize("way", [Way.DIED_BEFORE, Way.DIED_AFTER])
def test_the_copy_never_repeats_the_sending(
    way: Way, fresh: Fresh, server: SmtpServer, imap: ImapServer
) -> None:
    """A crash while the copy is saved leaves one mail and one copy of it."""
    for at in range(1, MOST_COMMITS):
        story = MailStory(fresh(), at, way, server, imap, save_sent=True)
        story.is_filed = False
        has_happened = story.run()
        (arrived,) = story.arrived
        copies = Counter(sent_ids(imap))[arrived.message["Message-ID"]]
        # A person who resolves the mail as done ends the step without a copy.
        assert copies == 1 or (copies == 0 and story.questions)
        if not has_happened:
            break
    assert at > 3


def test_a_kill_on_postgresql(postgres_url: str, server: SmtpServer, imap: ImapServer) -> None:
    """The same holds there."""
    story = MailStory(postgres_url, None, Way.REFUSED, server, imap)
    story.is_killed_on_arrival = True
    assert story.run()
    assert len(story.arrived) == 1
    assert story.questions == 0
    for way in (Way.DIED_AFTER, Way.LOST_UNHEARD):
        story = MailStory(postgres_url, 3, way, server, imap)
        story.run()
        assert len(story.arrived) == 1
