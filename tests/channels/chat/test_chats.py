"""Chats, each the same: strangers, questions with buttons, commands, failures, restarts."""

import re
import time
from typing import Any

import pytest

from agent.approvals.answering import DecidedError
from agent.store.channels import cursors as store
from agent.store.channels import pairings
from agent.store.engine import outages, workflow_versions
from agent.workflows.compile.compiler import compile_text
from tests.support.approvals import asked, asks, everything, gated, say, token
from tests.support.chat import Chat, Open, close
from tests.support.chat_server import Failure, Shown, received, shown_to
from tests.support.engine import eventually, graph, step
from tests.support.step_functions import runs

BOTH = pytest.mark.parametrize("database", ["sqlite", "postgres"], indirect=True)
QUESTION = "Pay 12 to Ada?"


def _question(chat: Chat, identity: str, words: str = QUESTION) -> Shown:
    return shown_to(chat.peer, identity, lambda each: words in each.text and len(each.buttons) > 0)


def _ended(chat: Chat, identity: str, words: str) -> Shown:
    """Wait until a question is shown as decided."""
    return shown_to(
        chat.peer,
        identity,
        lambda each: QUESTION in each.text and words in each.text and not each.buttons,
    )


def _cursor(chat: Chat) -> store.Cursor:
    with chat.engine.database.connect("reader") as connection:
        found = store.cursor(connection, chat.peer.name)
    assert found is not None
    return found


def _add_workflow(chat: Chat, text: str) -> None:
    found = compile_text(text.encode(), "test.yaml")
    with chat.engine.database.connect("writer") as connection, connection.transaction():
        workflow_versions.register(connection, found.name, found.hash, found.text, text, None, 1)


def _tasks(chat: Chat, workflow: str) -> list[str]:
    found = chat.engine.rows(
        "SELECT id FROM tasks WHERE workflow_name = :name ORDER BY id", name=workflow
    )
    return [str(task_id) for (task_id,) in found]


def test_a_stranger_can_do_nothing_but_get_a_code(chat: Chat) -> None:
    """An unpaired account gets a code, whatever it writes, and nothing else."""
    counted = token()
    task_id, approval = asked(chat.engine, gated("pay", counted))
    stranger = chat.peer.identity(1)
    for text in ("/approvals", f"/approve {approval['id']}", "/cancel " + task_id, "hello"):
        chat.peer.write(stranger, text)
    eventually(lambda: len(chat.peer.messages) >= 4)
    assert all("agent pair" in each.text for each in chat.peer.messages)
    assert len({each.text for each in chat.peer.messages}) == 4, "each code is a new one"
    assert chat.engine.status(task_id) == "running"
    assert everything(chat.engine, task_id)[0]["status"] == "pending"
    assert runs[counted] == []


@BOTH
def test_pairing_by_a_code_that_counts_once(chat: Chat) -> None:
    """The newest code pairs its account, once; a replaced or expired one does not."""
    one, other = chat.peer.identity(1), chat.peer.identity(2)
    old = chat.code(one)
    chat.peer.messages.clear()
    new = chat.code(one)
    with pytest.raises(Exception, match="is unknown"):
        chat.confirm(old)
    found = chat.confirm(new.lower())
    assert (found.channel, found.identity) == (chat.peer.name, one)
    with pytest.raises(Exception, match="is unknown"):
        chat.confirm(new)
    late = chat.code(other)
    chat.engine.skip(3601)
    with pytest.raises(Exception, match="has expired"):
        chat.confirm(late)
    with chat.engine.database.connect("reader") as connection:
        paired = pairings.listed(connection)
    assert [(each.identity, each.scopes) for each in paired] == [(one, ("operate", "approve"))]


@BOTH
def test_a_button_decides_and_the_message_says_so(chat: Chat) -> None:
    """A question comes with what will be done; one press lets the step run, and updates it."""
    ada, bob = chat.pair(1), chat.pair(2)
    counted = token()
    task_id, approval = asked(chat.engine, gated("pay", counted))
    shown = _question(chat, ada)
    assert approval["id"][-8:] in shown.text
    assert f'"token": "{counted}"' in shown.text, "what will be done is shown in full"
    assert set(shown.buttons) == {"Approve", "Deny"}
    _question(chat, bob)
    chat.peer.press(ada, shown.buttons["Approve"])
    chat.engine.wait(task_id, "succeeded")
    assert len(runs[counted]) == 1
    decision = everything(chat.engine, task_id)[0]["decision"]
    assert (decision["by"], decision["channel"]) == (ada, chat.peer.name)
    for who in (ada, bob):
        _ended(chat, who, f"✓ approved by {ada} ({chat.peer.name})")
    # The press is answered beside the delivery loop, which updates the messages.
    eventually(lambda: any("approved: step pay" in toast for toast in chat.peer.toasts))


def test_a_second_press_gets_the_decision(chat: Chat) -> None:
    """The first answer counts, from any channel; later presses get the decision."""
    ada, bob = chat.pair(1), chat.pair(2)
    task_id, approval = asked(chat.engine, gated("pay", token()))
    to_ada, to_bob = _question(chat, ada), _question(chat, bob)
    deny = to_bob.buttons["Deny"]
    chat.peer.press(bob, deny)
    chat.engine.wait(task_id, "failed")
    chat.peer.press(ada, to_ada.buttons["Approve"] if to_ada.buttons else deny)
    chat.peer.press(bob, deny)
    eventually(lambda: sum("denied already by" in toast for toast in chat.peer.toasts) >= 1)
    with pytest.raises(DecidedError, match=f"denied already by {bob}"):
        say(chat.engine, approval, "approve")
    assert len(everything(chat.engine, task_id)) == 1


def test_buttons_are_valid_for_one_person_and_a_limited_time(chat: Chat) -> None:
    """Another person's token, an invalid one and an expired one decide nothing."""
    ada, bob = chat.pair(1), chat.pair(2)
    task_id, _ = asked(chat.engine, gated("pay", token()))
    approve = _question(chat, ada).buttons["Approve"]
    for who, pressed in ((bob, approve), (ada, "made-up"), (chat.peer.identity(3), approve)):
        chat.peer.press(who, pressed)
    eventually(lambda: len(chat.peer.toasts) == 3, lambda: chat.peer.toasts)
    assert chat.peer.toasts[:2] == ["this button is not valid for this account"] * 2
    assert "not paired" in chat.peer.toasts[2]
    chat.engine.skip(8 * 86_400)
    chat.peer.press(ada, approve)
    eventually(lambda: any("has expired" in toast for toast in chat.peer.toasts))
    assert everything(chat.engine, task_id)[0]["status"] == "pending"


def test_an_unpaired_account_decides_nothing(chat: Chat) -> None:
    """A removed person's buttons and commands stop to count at once."""
    ada = chat.pair()
    task_id, _ = asked(chat.engine, gated("pay", token()))
    approve = _question(chat, ada).buttons["Approve"]
    with chat.engine.database.connect("writer") as tx, tx.transaction():
        assert pairings.remove(tx, chat.peer.name, ada)
    chat.peer.press(ada, approve)
    eventually(lambda: any("not paired" in toast for toast in chat.peer.toasts))
    assert everything(chat.engine, task_id)[0]["status"] == "pending"


def test_scopes_bound_what_people_may_do(chat: Chat) -> None:
    """The scope `read` allows no change; the scope `approve` does not include operating."""
    reader, approver = chat.pair(1), chat.pair(2, "approve")
    counted = token()
    task_id, _ = asked(chat.engine, gated("pay", counted))
    approve = _question(chat, reader).buttons["Approve"]
    with chat.engine.database.connect("writer") as tx, tx.transaction():
        assert pairings.remove(tx, chat.peer.name, reader)
    chat.peer.messages[:] = [each for each in chat.peer.messages if each.recipient != reader]
    chat.pair(1, "read")
    chat.peer.press(reader, approve)
    eventually(lambda: any("needs the scope 'approve'" in toast for toast in chat.peer.toasts))
    chat.peer.write(approver, f"/cancel {task_id}")
    received(chat.peer, approver, "/cancel needs the scope 'operate'")
    assert runs[counted] == []
    chat.peer.press(approver, _question(chat, approver).buttons["Approve"])
    chat.engine.wait(task_id, "succeeded")


def test_a_question_goes_to_those_who_may_answer(chat: Chat) -> None:
    """`who` names one account: only that account gets the question and may answer."""
    ada, bob = chat.pair(1), chat.pair(2)
    task_id, approval = asked(chat.engine, gated("pay", token(), who=[f"{chat.peer.name}:{ada}"]))
    _question(chat, ada)
    chat.peer.write(bob, f"/approve {approval['id']}")
    received(chat.peer, bob, "may not answer this")
    assert not [each for each in chat.peer.messages if each.recipient == bob and each.buttons]
    chat.peer.press(ada, _question(chat, ada).buttons["Approve"])
    chat.engine.wait(task_id, "succeeded")


def test_an_account_without_the_approve_scope_gets_no_questions(chat: Chat) -> None:
    """With the scope `read` it gets failures only."""
    reader, approver = chat.pair(1, "read"), chat.pair(2)
    task_id, approval = asked(chat.engine, gated("pay", token()))
    _question(chat, approver)
    say(chat.engine, approval, "deny")
    chat.engine.wait(task_id, "failed")
    # A later message has arrived, so an earlier one would have as well.
    received(chat.peer, reader, "failed: approval denied")
    assert not [
        each for each in chat.peer.messages if each.recipient == reader and QUESTION in each.text
    ]


def test_an_answer_to_a_message_is_the_value(chat: Chat) -> None:
    """A reply to the question's message is its answer; an invalid one gets the reason."""
    ada = chat.pair()
    schema = {"type": "integer", "minimum": 1}
    task_id, _ = asked(chat.engine, asks("which", "input", schema=schema))
    shown = received(chat.peer, ada, QUESTION)
    assert set(shown.buttons) == {"Deny"}
    chat.peer.write(ada, "0", answers=shown)
    received(chat.peer, ada, "less than the minimum")
    chat.peer.write(ada, "42", answers=shown)
    document = chat.engine.wait(task_id, "succeeded")
    assert document["steps"][0]["output"]["value"] == 42


def test_an_answer_may_come_before_its_question_is_on_record(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply that arrives before the agent has recorded its message counts."""
    ada = chat.pair()
    record = store.record_message

    def slowly(*given: Any) -> None:
        shown = received(chat.peer, ada, QUESTION)
        chat.peer.write(ada, "42", answers=shown)
        # Taken too early, the reply would not be understood as an answer.
        deadline = time.monotonic() + 1
        while chat.peer.messages[-1] is shown and time.monotonic() < deadline:
            time.sleep(0.01)
        record(*given)

    monkeypatch.setattr(store, "record_message", slowly)
    task_id, _ = asked(chat.engine, asks("which", "input", schema={"type": "integer"}))
    document = chat.engine.wait(task_id, "succeeded")
    assert document["steps"][0]["output"]["value"] == 42


def test_choices_are_buttons(chat: Chat) -> None:
    """Each choice is a button, with its own value."""
    ada = chat.pair()
    task_id, _ = asked(chat.engine, asks("which", "input", choices=["red", 7, True]))
    shown = _question(chat, ada)
    assert list(shown.buttons) == ["red", "7", "True", "Deny"]
    chat.peer.press(ada, shown.buttons["True"])
    document = chat.engine.wait(task_id, "succeeded")
    assert document["steps"][0]["output"]["value"] is True


def test_a_request_too_long_to_show_has_no_button(chat: Chat) -> None:
    """It is cut, which the message says, and needs a command."""
    ada = chat.pair()
    task_id, approval = asked(chat.engine, gated("pay", token(), value="🦆" * 12_000))
    shown = received(chat.peer, ada, QUESTION)
    assert not shown.buttons
    assert f"agent approvals {approval['id'][-8:]}" in shown.text
    chat.peer.write(ada, f"/approve {approval['id'][-8:]} seen elsewhere")
    chat.engine.wait(task_id, "succeeded")


def test_reminders_move_the_buttons_down(chat: Chat) -> None:
    """A reminder shows the question again; only the newest has buttons, and is updated."""
    ada = chat.pair()
    task_id, _ = asked(chat.engine, gated("pay", token(), remind=60))
    first = _question(chat, ada)
    chat.engine.skip(61)
    again = _question(chat, ada, "Reminder: ")
    eventually(lambda: not first.buttons)
    chat.peer.press(ada, again.buttons["Approve"])
    chat.engine.wait(task_id, "succeeded")
    eventually(lambda: "✓ approved" in again.text)


def test_expiry_and_renewal_are_shown(chat: Chat) -> None:
    """A question that expires says so; the one in its place is asked with buttons of its own."""
    ada = chat.pair()
    task_id, first = asked(chat.engine, gated("pay", token(), expires=60, on_expiry="renew"))
    _question(chat, ada)
    chat.engine.skip(61)
    _ended(chat, ada, "⊘ expired")
    shown = shown_to(
        chat.peer, ada, lambda each: bool(each.buttons) and first["id"][-8:] not in each.text
    )
    chat.peer.press(ada, shown.buttons["Approve"])
    chat.engine.wait(task_id, "succeeded")


def test_withdrawn_questions_are_shown_as_such(chat: Chat) -> None:
    """Cancelling a task withdraws its question in every chat."""
    ada = chat.pair()
    task_id, _ = asked(chat.engine, gated("pay", token()))
    _question(chat, ada)
    chat.peer.write(ada, f"/cancel {task_id} not today")
    _ended(chat, ada, "⊘ withdrawn")


def test_commands_do_what_they_say(chat: Chat) -> None:
    """Every command, on real tasks."""
    ada = chat.pair()
    greet = (
        "name: greet\ninputs: {word: {type: string}}\n"
        'steps:\n  ask: {approval: {message: "Say {{ inputs.word }}?"}}\n'
    )
    _add_workflow(chat, greet)
    chat.peer.write(ada, '/run greet word="good morning"')
    task_id = eventually(lambda: _tasks(chat, "greet"))[0]
    short = task_id[-8:]
    received(chat.peer, ada, f"started greet: task {short}")
    asked_for = received(chat.peer, ada, "Say good morning?")
    approval = everything(chat.engine, task_id)[0]["id"]
    assert set(asked_for.buttons) == {"Approve", "Deny"}
    for text, answer in {
        "/status": "open questions: 1",
        "/tasks": f"{short}  greet: waiting, asks: Say good morning?",
        "/tasks waiting": f"{short}  greet: waiting",
        "/tasks running": "no tasks",
        "/tasks failed": "no tasks",
        "/tasks nonsense": "there is no activity 'nonsense'",
        f"/task {short}": "◔ ask (approval): waiting",
        f"/why {short}": f"step ask waits for an answer to {approval[-8:]}: Say good morning?",
        "/approvals": f"{approval[-8:]}  approval  greet: Say good morning?",
        f"/approvals {approval[-8:]}": "step ask of greet",
        f"/pause {short} for a while": "paused",
        f"/resume {short}": "resumed",
        "/help": "/approvals [ID] – list the open questions, or show one",
        f"/deny {approval[-8:]} not so loud": "denied: step ask",
    }.items():
        chat.peer.messages.clear()
        chat.peer.write(ada, text)
        received(chat.peer, ada, answer)
    chat.engine.wait(task_id, "failed")
    chat.peer.write(ada, f"/why {short}")
    received(chat.peer, ada, f"approval denied by {ada}: not so loud")
    received(chat.peer, ada, f"✗ greet {short} failed")
    chat.peer.write(ada, f"/retry {short}")
    again = eventually(lambda: _tasks(chat, "greet")[1:])[0]
    chat.peer.write(ada, f"/cancel {again}")
    chat.engine.wait(again, "canceled")
    chat.peer.write(ada, f"/retry {again[-8:]} soon")
    received(chat.peer, ada, "write it as /retry TASK [latest]")
    _add_workflow(chat, greet.replace("Say", "Whisper"))
    chat.peer.write(ada, f"/retry {again[-8:]} latest")
    received(chat.peer, ada, "Whisper good morning?")


def test_edits_are_approved_as_edited(chat: Chat) -> None:
    """/edit changes what may be changed, and approves that."""
    ada = chat.pair()
    counted = token()
    task_id, approval = asked(chat.engine, gated("pay", counted, editable=["with.value"]))
    chat.peer.write(ada, f"/edit {approval['id']} with.token=other")
    received(chat.peer, ada, "may not be edited")
    chat.peer.write(ada, f"/edit {approval['id']}")
    received(chat.peer, ada, "write it as /edit ID KEY=VALUE…")
    chat.peer.write(ada, f"/edit {approval['id']} with.value=30")
    chat.engine.wait(task_id, "succeeded")
    assert everything(chat.engine, task_id)[0]["decision"]["edits"] == {"with.value": 30}


def test_a_text_that_is_no_command_gets_help(chat: Chat) -> None:
    """A mistake is answered like anything else."""
    ada = chat.pair()
    chat.peer.write(ada, "good evening")
    received(chat.peer, ada, "commands begin with a slash")


def test_workflows_have_commands_of_their_own(chat: Chat) -> None:
    """`on: chat` names a command, which starts its workflow once however often it comes."""
    ada = chat.pair()
    _add_workflow(
        chat,
        "name: triage\non: {chat: {command: sort, description: look through the post}}\n"
        "inputs: {most: {type: integer, default: 5}}\n"
        'steps: {look: {wait: 1ms}}\noutput: "{{ inputs.most }}"\n',
    )
    chat.peer.write(ada, "/help")
    received(chat.peer, ada, "/sort [KEY=VALUE]… – look through the post")
    chat.peer.write(ada, "/sort most=7")
    (task_id,) = eventually(lambda: _tasks(chat, "triage"))
    chat.peer.repeat()
    answer = f"started triage: task {task_id[-8:]}"
    eventually(lambda: [each.text for each in chat.peer.messages].count(answer) == 2)
    assert _tasks(chat, "triage") == [task_id]
    document: dict[str, Any] = chat.engine.wait(task_id, "succeeded")
    assert document["output"] == 7
    assert document["trigger"] == {"kind": "chat", "channel": chat.peer.name, "by": ada}


@BOTH
def test_deliveries_go_on_where_they_were(chat: Chat) -> None:
    """A question asked while no process delivers is delivered once after a restart."""
    ada = chat.pair()
    first, _ = asked(chat.engine, gated("pay", token()))
    _question(chat, ada)
    chat.channels.stop()
    chat.channels._thread.join(60)
    missed, _ = asked(chat.engine, gated("pay", token(), message="Missed?"))
    chat.restart()
    shown = _question(chat, ada, "Missed?")
    chat.peer.press(ada, shown.buttons["Approve"])
    chat.engine.wait(missed, "succeeded")
    assert sum(QUESTION in each.text for each in chat.peer.messages) == 1
    assert chat.engine.status(first) == "running"


@BOTH
def test_a_new_channel_delivers_open_questions(chat: Chat) -> None:
    """A new channel begins with what waits for an answer already, and leaves the past alone."""
    ada = chat.pair()
    chat.channels.stop()
    chat.channels._thread.join(60)
    asked(chat.engine, gated("pay", token()))
    done, decided = asked(chat.engine, gated("pay", token(), message="Long ago?"))
    say(chat.engine, decided, "deny")
    chat.engine.wait(done, "failed")
    with chat.engine.database.connect("writer") as tx, tx.transaction():
        tx.execute("DELETE FROM channel_cursors")
    chat.restart()
    _question(chat, ada)
    assert not any("Long ago?" in each.text or "failed" in each.text for each in chat.peer.messages)


@BOTH
def test_deliveries_are_retried_after_errors(chat: Chat) -> None:
    """Errors of the service, and requests to wait, are retried in order and recorded."""
    ada = chat.pair()
    failures = (Failure(0), Failure(500), Failure(429, retry_after=1), Failure(502))
    chat.peer.fail("send", *failures)
    asked(chat.engine, gated("pay", token()))
    eventually(lambda: _cursor(chat).failures > 0)
    assert _cursor(chat).error
    received(chat.peer, ada, QUESTION)
    eventually(lambda: _cursor(chat).failures == 0)
    assert sum(QUESTION in each.text for each in chat.peer.messages) == 1
    events = chat.engine.rows("SELECT data FROM events WHERE type = 'delivery.failed'")
    assert len(events) == 1, "a lasting failure is one event"
    assert chat.peer.name in events[0][0]
    assert '"given_up": false' in events[0][0]


def test_a_rejected_delivery_does_not_hold_back_others(chat: Chat) -> None:
    """An account that blocked the agent is skipped and recorded; the others get the message."""
    chat.pair(1)
    bob = chat.pair(2)
    chat.peer.fail("send", Failure(403, "account_inactive"))
    asked(chat.engine, gated("pay", token()))
    _question(chat, bob)
    eventually(
        lambda: chat.engine.rows(
            "SELECT 1 FROM events WHERE type = 'delivery.failed' AND data LIKE '%given_up\": true%'"
        )
    )
    asked(chat.engine, gated("pay", token(), message="And this?"))
    _question(chat, bob, "And this?")


def test_the_service_comes_and_goes(chat: Chat) -> None:
    """While receiving fails, the error is recorded; afterwards no message is missing."""
    ada = chat.pair()
    chat.peer.goes_away(is_away=True)
    eventually(lambda: _cursor(chat).trouble)
    chat.peer.write(ada, "/status")
    chat.peer.goes_away(is_away=False)
    received(chat.peer, ada, "open questions: 0")
    eventually(lambda: _cursor(chat).trouble is None)


def test_failed_tasks_are_delivered(chat: Chat) -> None:
    """Every paired account gets the failure of a task."""
    ada = chat.pair()
    document = chat.engine.run(graph(step("bad", "fail")), "failed")
    shown = received(chat.peer, ada, f"✗ tested {document['id'][-8:]} failed")
    assert re.search(r"failed: .+", shown.text)


@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_of_several_processes_one_has_the_channel(chat: Chat, open_channels: Open) -> None:
    """On PostgreSQL everything is delivered once, and another goes on where one has ended."""
    ada = chat.pair()
    open_channels(chat.settings)
    asked(chat.engine, gated("pay", token()))
    _question(chat, ada)
    close(chat.channels)
    task_id, _ = asked(chat.engine, gated("pay", token(), message="Who asks now?"))
    shown = _question(chat, ada, "Who asks now?")
    chat.peer.press(ada, shown.buttons["Approve"])
    chat.engine.wait(task_id, "succeeded")
    assert sum(QUESTION in each.text for each in chat.peer.messages) == 1


def test_an_outage_of_the_store_is_delivered(chat: Chat) -> None:
    """Every paired account gets the beginning and the end of an outage of the artifact store."""
    ada, bob = chat.pair(1), chat.pair(2)
    outage = {"outage": "1", "store": "s3://bucket", "error": "connection refused"}
    outages.record(chat.engine.database, "artifacts.unreachable", outage)
    for who in (ada, bob):
        received(chat.peer, who, "the artifact store s3://bucket does not answer")
    outages.record(chat.engine.database, "artifacts.reachable", outage)
    for who in (ada, bob):
        received(chat.peer, who, "the artifact store s3://bucket answers again")


def test_notices_about_disk_and_backups_are_delivered(chat: Chat) -> None:
    """Before the disk is full, when it almost is, and when there is room again."""
    ada = chat.pair(1)
    data = {"path": "/data", "host": "home", "free_bytes": 400 * 1024 * 1024, "level": "low"}
    outages.record(chat.engine.database, "disk.low", data)
    received(chat.peer, ada, "the disk of /data on home gets full: 400 MB are left")
    outages.record(chat.engine.database, "disk.low", {**data, "level": "critical"})
    received(chat.peer, ada, "is almost full: 400 MB are left; tasks stop soon")
    outages.record(chat.engine.database, "disk.recovered", {**data, "level": "ok"})
    received(chat.peer, ada, "has room again: 400 MB are free")
    outages.record(chat.engine.database, "backup.failed", {"error": "no room"})
    received(chat.peer, ada, "the database is not backed up: no room")
    outages.record(chat.engine.database, "backup.recovered", {"file": "/b/agent.db"})
    received(chat.peer, ada, "backups work again: /b/agent.db")


def test_notices_about_triggers_are_delivered(chat: Chat) -> None:
    """Every paired account gets what became of schedules and watchers."""
    ada = chat.pair(1)
    missed = {"trigger": "backup:nightly", "workflow": "backup", "count": 3, "is_exact": True}
    missed |= {"from": "2027-01-01T02:00:00.000Z", "to": "2027-01-03T02:00:00.000Z"}
    outages.record(chat.engine.database, "schedule.missed", {**missed, "reason": "asleep"})
    received(
        chat.peer,
        ada,
        "the schedule backup:nightly missed 3 runs from 2027-01-01T02:00:00.000Z to"
        " 2027-01-03T02:00:00.000Z: asleep",
    )
    failed = {"trigger": "news:feed", "workflow": "news", "failures": 3, "error": "status 500"}
    outages.record(chat.engine.database, "watcher.failed", failed)
    received(chat.peer, ada, "the watcher news:feed fails: status 500")
    outages.record(chat.engine.database, "watcher.recovered", {**failed, "after": "failed"})
    received(chat.peer, ada, "the watcher news:feed works again")
    outages.record(chat.engine.database, "watcher.silent", {**failed, "seconds": 7200})
    received(chat.peer, ada, "the watcher news:feed has found nothing new for 2h")
