"""The `message` kind: one call for each part, what failed is tried again, and nothing fails in silence."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agent.core.chat_origin import ChatOrigin
from agent.core.clock import SECOND
from agent.core.state_machine import CallStatus
from agent.steps.attempt.services import Limits
from agent.steps.types.outcome import Failed, Outcome, Retry, Succeeded, Waiting
from tests.support.attempt import Trial
from tests.support.recording_messenger import RecordingMessenger, refused, unheard, unreachable


class Messages:
    """A step that sends, and the messenger that it has."""

    def __init__(self, limits: Limits | None = None, **config: Any) -> None:
        self.messenger = RecordingMessenger("telegram:1", "slack:U1")
        trial = Trial("message", {"text": "hello", **config}, max_attempts=9)
        trial.limits = limits or trial.limits
        trial.__post_init__()
        trial.services.messenger = self.messenger
        self.trial = trial

    def attempt(self) -> Outcome:
        """Run one attempt."""
        return asyncio.run(self.trial.attempt())

    def later(self, seconds: float) -> None:
        """Let time pass."""
        self.trial.clock.skew_us += int(seconds * SECOND)


def test_the_intent_is_durable_before_anything_is_sent() -> None:
    """The ledger has the call when the messenger gets the message."""
    step = Messages(to="telegram:1")
    seen: list[list[CallStatus]] = []
    step.messenger.on_send = lambda: seen.append(step.trial.journal.statuses)
    assert isinstance(step.attempt(), Succeeded)
    assert seen == [[CallStatus.UNKNOWN]]
    assert step.trial.journal.statuses == [CallStatus.SUCCEEDED]


def test_the_default_is_the_origin_and_then_the_operator() -> None:
    """A task that a chat started answers there; another one tells the operator."""
    step = Messages()
    step.attempt()
    assert [name for name, _ in step.messenger.arrived] == ["telegram:1", "slack:U1"]
    step = Messages()
    step.trial.task = {"chat_origin": ChatOrigin("slack", "U7", "D7:1.5")}
    outcome = step.attempt()
    assert isinstance(outcome, Succeeded)
    assert outcome.output == {
        "deliveries": [{"channel": "slack", "recipient": "U7", "message_id": "m1"}]
    }
    assert step.messenger.sent[0].recipient.thread == "D7:1.5"


def test_what_was_sent_is_not_sent_again() -> None:
    """After a failure only the missing part goes out, and the output lists every part."""
    step = Messages(to=["telegram:1", "telegram:2"], text="one\n\ntwo")
    step.messenger.failures = [None, unreachable(7.0)]
    outcome = step.attempt()
    assert isinstance(outcome, Retry)
    assert outcome.delay_seconds == 7.0
    assert step.messenger.arrived == [
        ("telegram:1", "one"),
        ("telegram:2", "one"),
        ("telegram:2", "two"),
    ]
    outcome = step.attempt()
    assert isinstance(outcome, Succeeded)
    assert step.messenger.arrived[3:] == [("telegram:1", "two")]
    assert [each["message_ids"] for each in outcome.output["deliveries"]] == [
        ["m1", "m4"],
        ["m2", "m3"],
    ]


def test_an_unknown_message_is_sent_again_under_the_same_key() -> None:
    """A message twice is better than none; the second waits until the first must be over."""
    step = Messages(to="telegram:1")
    keys: list[str] = []
    step.messenger.failures = [unheard()]
    assert isinstance(step.attempt(), Retry)
    assert isinstance(step.attempt(), Waiting)
    assert step.messenger.sent == []
    step.trial.pass_expiry()
    assert isinstance(step.attempt(), Succeeded)
    keys = [intent.remote_key for _, intent in step.trial.journal.intents]
    assert keys[0] == keys[1]
    assert step.trial.journal.statuses == [CallStatus.UNKNOWN, CallStatus.SUCCEEDED]


def test_an_unreachable_channel_fails_the_step_after_its_time() -> None:
    """Within `deliver_within` it is tried again; then the step fails and says why."""
    step = Messages(to="telegram:1", deliver_within="10m")
    step.messenger.failures = [unreachable()] * 5
    assert isinstance(step.attempt(), Retry)
    step.later(500)
    assert isinstance(step.attempt(), Retry)
    step.later(101)
    outcome = step.attempt()
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "undelivered"
    assert "telegram:1: not reached" in outcome.error.message


def test_a_delay_beyond_the_time_fails_at_once() -> None:
    """A service that asks to wait longer than the step may try ends it."""
    step = Messages(to="telegram:1", deliver_within="1m")
    step.messenger.failures = [unreachable(3600.0)]
    outcome = step.attempt()
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "undelivered"


def test_unknown_messages_end_too() -> None:
    """A channel that never answers is given up after its time, although each call is unknown."""
    step = Messages(to="telegram:1", deliver_within="5m")
    step.messenger.failures = [unheard()] * 5
    assert isinstance(step.attempt(), Retry)
    step.later(400)
    assert isinstance(step.attempt(), Retry), "one try is made, however long the machine slept"
    step.trial.pass_expiry()
    outcome = step.attempt()
    assert isinstance(outcome, Failed)
    assert "unknown" in outcome.error.message
    assert len(step.messenger.failures) == 3


def test_one_operator_is_enough_and_none_is_a_failure() -> None:
    """`operator` succeeds with one delivery; without any the step fails."""
    step = Messages(to="operator")
    step.messenger.failures = [refused()]
    outcome = step.attempt()
    assert isinstance(outcome, Succeeded)
    first, second = outcome.output["deliveries"]
    assert (first["error"], first["message_id"]) == ("blocked", None)
    assert second["message_id"] == "m1"
    step = Messages(to="operator")
    step.messenger.failures = [refused(), refused()]
    outcome = step.attempt()
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "refused"


def test_operators_stay_the_same_for_every_attempt() -> None:
    """Someone who is paired between two attempts does not shift the recorded calls."""
    step = Messages(to="operator")
    step.messenger.failures = [unreachable(), unreachable()]
    assert isinstance(step.attempt(), Retry)
    step.messenger.names.insert(0, "telegram:0")
    assert isinstance(step.attempt(), Succeeded)
    assert [name for name, _ in step.messenger.arrived] == ["telegram:1", "slack:U1"]


def test_no_one_to_send_to_is_a_failure_with_its_remedy() -> None:
    """An empty `operator` is never a success."""
    step = Messages(to="operator")
    step.messenger.names = []
    outcome = step.attempt()
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "no_recipient"
    assert "agent pair CODE" in outcome.error.message


def test_someone_named_twice_gets_it_once() -> None:
    """The operator may be the origin as well."""
    step = Messages(to=["operator", "telegram:1"])
    assert isinstance(step.attempt(), Succeeded)
    assert [name for name, _ in step.messenger.arrived] == ["telegram:1", "slack:U1"]


def test_data_cannot_name_an_address_of_apprise() -> None:
    """A reference that a template returned is refused: only the definition names secrets."""
    step = Messages(to=["{{ inputs.who }}"])
    step.trial.inputs = {"who": "apprise:env:HOME"}
    outcome = step.attempt()
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "bad_recipient"
    assert step.messenger.sent == []


def test_a_recipient_from_a_template_is_checked() -> None:
    """What a template returns must be a recipient."""
    step = Messages(to="{{ inputs.who }}")
    step.trial.inputs = {"who": "telegram:ada"}
    outcome = step.attempt()
    assert isinstance(outcome, Failed)
    assert "telegram:123456789" in outcome.error.message


def test_values_of_the_task_are_attached() -> None:
    """A text goes as it is, another value as JSON, base64 as its bytes; the ledger has the hash."""
    step = Messages(
        to="telegram:1",
        attach=[
            {"name": "a.txt", "value": "{{ inputs.text }}"},
            {"name": "b.json", "value": {"n": 1}},
            {"name": "c.bin", "base64": "AAE="},
        ],
    )
    step.trial.inputs = {"text": "größer"}
    assert isinstance(step.attempt(), Succeeded)
    files = [each.part.attachment for each in step.messenger.sent[1:]]
    contents = [file.content for file in files if file is not None]
    assert contents == ["größer".encode(), b'{\n "n": 1\n}', b"\x00\x01"]
    request = step.trial.journal.intents[1][1].request
    assert request["attach"]["bytes"] == 8
    assert len(request["attach"]["sha256"]) == 64


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Return a directory with files, links and a secret beside it."""
    (tmp_path / "secret.txt").write_text("no")
    directory = tmp_path / "reports"
    (directory / "sub").mkdir(parents=True)
    (directory / "sub" / "day.csv").write_text("a,b")
    (directory / "link.txt").symlink_to(tmp_path / "secret.txt")
    (directory / "up").symlink_to(tmp_path)
    return directory


@pytest.mark.parametrize("is_absolute", [False, True])
def test_a_file_below_an_allowed_directory_is_attached(reports: Path, is_absolute: bool) -> None:
    """By a path relative to the directory, or by its own."""
    path = str(reports / "sub/day.csv") if is_absolute else "sub/day.csv"
    step = Messages(Limits(attach_from=(str(reports),)), to="telegram:1", attach=[path])
    assert isinstance(step.attempt(), Succeeded)
    file = step.messenger.sent[1].part.attachment
    assert file is not None
    assert (file.name, file.content) == ("day.csv", b"a,b")
    assert file.path == str(reports / "sub/day.csv")


@pytest.mark.parametrize(
    "path",
    ["../secret.txt", "sub/../../secret.txt", "link.txt", "up/secret.txt", "/etc/passwd", "sub"],
)
def test_no_file_outside_is_attached(reports: Path, path: str) -> None:
    """Neither .. nor a link leads out, and nothing is sent."""
    step = Messages(Limits(attach_from=(str(reports),)), to="telegram:1", attach=[path])
    outcome = step.attempt()
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "bad_attachment"
    assert step.messenger.sent == []


@pytest.mark.parametrize("path", ["token", "agent.db-journal", "backups/deep/agent.db"])
def test_no_private_file_of_the_agent_is_attached(reports: Path, path: str) -> None:
    """Nor what is named after one, or is below a private directory."""
    (reports / path).parent.mkdir(parents=True, exist_ok=True)
    (reports / path).write_text("secret")
    private = tuple(str(reports / name) for name in ("token", "agent.db", "backups"))
    limits = Limits(attach_from=(str(reports),), private_files=private)
    step = Messages(limits, to="telegram:1", attach=[path])
    outcome = step.attempt()
    assert isinstance(outcome, Failed)
    assert "private file" in outcome.error.message
    assert step.messenger.sent == []


def test_without_a_setting_no_file_is_attached(reports: Path) -> None:
    """Files need a directory that the configuration allows."""
    step = Messages(to="telegram:1", attach=[str(reports / "sub/day.csv")])
    outcome = step.attempt()
    assert isinstance(outcome, Failed)
    assert "attach_from in [steps]" in outcome.error.message
