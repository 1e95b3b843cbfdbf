"""Notices to the addresses of `operator`, and the workflow that follows a failure."""

from pathlib import Path
from typing import Any

from agent.channels.supervisor import Channels
from agent.config.channels import NotifySettings
from agent.config.settings import Settings
from agent.store.channels import cursors as store
from agent.store.engine import outages
from tests.support.apprise_receiver import AppriseReceiver
from tests.support.approvals import MESSAGE, asked, gated, say, token
from tests.support.chat import Chat, Open, close
from tests.support.chat_server import shown_to
from tests.support.cli import PROGRAM, Cli
from tests.support.engine import Engine, eventually, graph, step
from tests.support.recorded_triggers import record_workflow


def _opened(engine: Engine, open_channels: Open, base: Path, **notify: Any) -> Channels:
    """Run the channels of [notify], and wait until they deliver what happens next."""
    channels = open_channels(Settings(base=base, notify=NotifySettings(**notify)))
    _wait_until_begun(engine)
    return channels


def _wait_until_begun(engine: Engine) -> None:
    def have_begun() -> bool:
        with engine.database.connect("reader") as connection:
            found = store.cursors(connection)
        return bool(found) and all(cursor.position != store.NOT_BEGUN for cursor in found)

    eventually(have_begun)


def _texts(apprise: AppriseReceiver) -> list[str]:
    return [given["message"] for given in apprise.received]


def test_apprise_alone_gets_questions_decisions_and_failures(
    engine: Engine, open_channels: Open, apprise: AppriseReceiver, tmp_path: Path
) -> None:
    """With no bot and no webhook, an address of `operator` reaches a person."""
    _opened(engine, open_channels, tmp_path, operator=["apprise:env:ALERTS"])
    task_id, approval = asked(engine, gated("pay", token()))
    eventually(lambda: len(apprise.received) == 1)
    say(engine, approval, "deny", comment="not today")
    engine.wait(task_id, "failed")
    eventually(lambda: len(apprise.received) == 3)
    question, decision, failure = _texts(apprise)
    assert MESSAGE in question
    assert f"agent approvals {approval['id'][-8:]}" in question
    assert "✗ denied" in decision
    assert "not today" in decision
    assert "failed: " in failure
    assert f"agent show {task_id[-8:]}" in failure


def test_a_notice_that_did_not_arrive_is_sent_again_and_holds_up_no_other_address(
    engine: Engine, open_channels: Open, apprise: AppriseReceiver, tmp_path: Path
) -> None:
    """Each address has a cursor of its own."""
    apprise.status = 500
    operator = ["apprise:env:ALERTS", "terminal:ada"]
    _opened(engine, open_channels, tmp_path, operator=operator)
    low = {"path": "data", "host": "home", "free_bytes": 1, "total_bytes": 2, "level": "low"}
    outages.record(engine.database, "disk.low", low)
    inbox = "SELECT text FROM terminal_messages WHERE recipient = 'ada'"
    eventually(lambda: engine.rows(inbox))
    eventually(lambda: len(apprise.received) >= 2)
    apprise.status = 200
    eventually(lambda: not _failures(engine))
    (text,) = engine.rows(inbox)[0]
    assert text.startswith("! the disk of data on home gets full")
    assert set(_texts(apprise)) == {text}


def test_what_fails_before_the_first_notice_arrives_is_sent_after_it(
    engine: Engine, open_channels: Open, apprise: AppriseReceiver, tmp_path: Path
) -> None:
    """A new address gets the questions that are open, then all that happened since."""
    asked(engine, gated("pay", token()))
    apprise.status = 500
    notify = NotifySettings(operator=["apprise:env:ALERTS"])
    open_channels(Settings(base=tmp_path, notify=notify))
    eventually(lambda: len(apprise.received) == 1)
    task = engine.run(graph(step("bad", "fail")), "failed")
    apprise.status = 200
    eventually(lambda: f"agent show {task['id'][-8:]}" in _texts(apprise)[-1])
    assert MESSAGE in _texts(apprise)[-2]


def _failures(engine: Engine) -> int:
    with engine.database.connect("reader") as connection:
        return sum(cursor.failures for cursor in store.cursors(connection))


def test_a_paired_account_is_told_once(
    chat: Chat, engine: Engine, open_channels: Open, tmp_path: Path
) -> None:
    """Its chat asks it, with buttons; its address in `operator` adds nothing."""
    identity = chat.pair()
    address = f"{chat.peer.name}:{identity}"
    notify = NotifySettings(operator=[address, "terminal:ada"])
    close(chat.channels)
    open_channels(chat.settings.model_copy(update={"notify": notify}))
    _wait_until_begun(engine)
    asked(engine, gated("pay", token()))
    shown_to(chat.peer, identity, lambda each: bool(each.buttons))
    eventually(lambda: engine.rows("SELECT text FROM terminal_messages"))
    engine.run(graph(step("bad", "fail")), "failed")
    shown_to(chat.peer, identity, lambda each: "failed: " in each.text)
    eventually(lambda: len(engine.rows("SELECT text FROM terminal_messages")) == 2)
    assert not [shown for shown in chat.peer.messages if "agent show" in shown.text]


HOOK = """\
name: on-trouble
steps:
  note:
    input: {message: "{{ trigger.workflow }} {{ trigger.task }}: {{ trigger.error.message }}"}
"""


def test_a_workflow_follows_each_failure_once(
    engine: Engine, open_channels: Open, tmp_path: Path
) -> None:
    """One task per failed task, whatever is delivered again; none for its own failure."""
    record_workflow(engine.database, HOOK)
    hook = {"on_failure": "workflow:on-trouble"}
    channels = _opened(engine, open_channels, tmp_path, **hook)
    failed = engine.run(graph(step("bad", "fail")), "failed")
    started = "SELECT id FROM tasks WHERE workflow_name = 'on-trouble'"
    eventually(lambda: engine.rows(started))
    eventually(lambda: engine.rows("SELECT message FROM approvals"))
    ((message,),) = engine.rows("SELECT message FROM approvals")
    assert failed["id"] in message
    assert failed["error"]["message"] in message
    close(channels)
    with engine.database.connect("writer") as tx, tx.transaction():
        store.move(tx, "on_failure", (0, 0), 1)
    _opened(engine, open_channels, tmp_path, **hook)
    again = engine.run(graph(step("bad", "fail")), "failed")
    by_task = f"{started} AND trigger LIKE :task"
    eventually(lambda: engine.rows(by_task, task=f"%{again['id']}%"))
    assert len(engine.rows(started)) == 2


def test_whether_notices_arrive_can_be_tried(cli: Cli, apprise: AppriseReceiver) -> None:
    """`notify test` says of each way whether it works; without one, every command says so."""
    cli("init")
    no_one = "no one is notified: no channel is configured, and `operator` in [notify] is empty"
    assert no_one in cli("notify", "test", code=3).out
    assert no_one in cli("status", code=3).out
    assert no_one in cli("doctor").out
    operator = '["apprise:env:ALERTS", "apprise:env:MISSING", "terminal:ada"]'
    cli.environment |= {"ALERTS": apprise.address, "AGENT_NOTIFY__OPERATOR": operator}
    # Apprise leaves a thread that only the end of an interpreter wakes.
    cli.program = PROGRAM
    sent = cli("notify", "test", "--json", code=3).json
    problems = {each["to"]: each["problem"] for each in sent["sent"]}
    assert sent["no_notices"] is None
    assert problems["apprise:env:ALERTS"] is None
    assert problems["terminal:ada"] is None
    assert "MISSING" in problems["apprise:env:MISSING"]
    (given,) = apprise.received
    assert given["message"] == "This is a test: notices of the agent reach you here."
    assert "no one is notified" not in cli("status", code=3).out
