"""Webhooks: each scheme's signatures, good and bad, and one task per delivery."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from standardwebhooks import Webhook

from agent.core.clock import SECOND
from agent.server.access import failed_auth_limiter, webhook_signatures
from agent.server.access.webhook_signatures import SignatureError
from tests.support.server import Running

_FORM = "application/x-www-form-urlencoded"
KEY = b"0123456789abcdef0123456789abcdef"
SECRETS = {
    "standard": "whsec_" + base64.b64encode(KEY).decode(),
    "github": "the-secret-of-github",
    "stripe": "whsec_the_secret_of_stripe",
    "slack": "the-secret-of-slack",
    "token": "the-secret-of-a-token",
}
BODY = b'{"id": "evt_1", "event_id": "Ev1", "type": "paid", "amount": 7}'
WORKFLOW = """\
name: on-{preset}
on: {{webhook: {{verify: {preset}, secret: "env:HOOK_{upper}"}}}}
steps:
  show: {{shell: {{argv: [echo, "{{{{ trigger.body.amount }}}}"], effect: none}}}}
output: "{{{{ steps.show.output.stdout | trim }}}}"
"""


def _hex(secret: str, text: bytes) -> str:
    return hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def sign(
    preset: str, body: bytes, *, delivery: str = "one", at: int | None = None, secret: str = ""
) -> dict[str, str]:
    """Return the headers that a sender of this scheme sends."""
    secret = secret or SECRETS[preset]
    at = int(time.time()) if at is None else at
    match preset:
        case "standard":
            signature = Webhook(secret).sign(
                delivery, datetime.fromtimestamp(at, UTC), body.decode()
            )
            return {
                "webhook-id": delivery,
                "webhook-timestamp": str(at),
                "webhook-signature": signature,
            }
        case "github":
            return {
                "x-github-delivery": delivery,
                "x-github-event": "push",
                "x-hub-signature-256": "sha256=" + _hex(secret, body),
            }
        case "stripe":
            return {"stripe-signature": f"t={at},v1={_hex(secret, f'{at}.'.encode() + body)}"}
        case "slack":
            return {
                "x-slack-request-timestamp": str(at),
                "x-slack-signature": "v0=" + _hex(secret, f"v0:{at}:".encode() + body),
            }
    return {"authorization": f"Bearer {secret}", "webhook-id": delivery}


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_auth_limiter, "MAX_FAILURES", 100_000)
    for preset, secret in SECRETS.items():
        monkeypatch.setenv(f"HOOK_{preset.upper()}", secret)


@pytest.fixture
def sender(running: Running) -> Iterator[httpx.Client]:
    """Return a client without a token, and a workflow for each scheme."""
    for preset in SECRETS:
        running.add_workflow(WORKFLOW.format(preset=preset, upper=preset.upper()))
    with running.client("") as client:
        yield client


def _deliver(
    client: httpx.Client, preset: str, headers: dict[str, str], body: bytes = BODY
) -> httpx.Response:
    all_headers = {"Content-Type": "application/json", **headers}
    return client.post(f"/hooks/on-{preset}", content=body, headers=all_headers)


@pytest.mark.parametrize("preset", SECRETS)
def test_a_good_delivery_starts_one_task(
    running: Running, client: httpx.Client, sender: httpx.Client, preset: str
) -> None:
    """After 202 the task is durable; a redelivery, at once or later, returns the same task."""
    headers = sign(preset, BODY)
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda _: _deliver(sender, preset, headers), range(12)))
    assert {answer.status_code for answer in answers} == {202}
    (task_id,) = {answer.json()["task"] for answer in answers}
    task = client.get(f"/api/v1/tasks/{task_id}").json()
    assert task["trigger"]["kind"] == "webhook"
    assert task["trigger"]["body"]["amount"] == 7
    assert running.wait_for_task(client, task_id, "succeeded")["output"] == "7"
    assert _deliver(sender, preset, headers).json()["task"] == task_id
    # What proves the sender is not for the record.
    assert SECRETS[preset] not in json.dumps(task)


@pytest.mark.parametrize("preset", SECRETS)
def test_a_bad_delivery_starts_nothing(
    client: httpx.Client, sender: httpx.Client, preset: str
) -> None:
    """No signature, one of another secret, or a changed body: 401 and no task."""
    before = client.get("/api/v1/tasks", params={"workflow": f"on-{preset}"}).json()["tasks"]
    other = {"standard": "whsec_" + base64.b64encode(KEY[::-1]).decode()}.get(preset, "other")
    refused = [
        _deliver(sender, preset, {}),
        _deliver(sender, preset, sign(preset, BODY, delivery="two", secret=other)),
    ]
    if preset != "token":
        changed = BODY.replace(b"7", b"9")
        refused.append(_deliver(sender, preset, sign(preset, BODY, delivery="two"), changed))
    assert {answer.status_code for answer in refused} == {401}
    assert refused[0].json()["type"] == "urn:agent:problem:bad-signature"
    after = client.get("/api/v1/tasks", params={"workflow": f"on-{preset}"}).json()["tasks"]
    assert [task["id"] for task in after] == [task["id"] for task in before]


@pytest.mark.parametrize("preset", ["standard", "stripe", "slack"])
@pytest.mark.parametrize(
    "off", [-webhook_signatures.TOLERANCE_SECONDS - 1, webhook_signatures.TOLERANCE_SECONDS + 1]
)
def test_old_and_future_deliveries(preset: str, off: int) -> None:
    """A signed timestamp more than five minutes off is refused, to the second, in both directions."""
    now = 1_700_000_000
    verify = webhook_signatures.verify
    headers = sign(preset, BODY, at=now)
    assert verify(preset, SECRETS[preset], headers, BODY, (now + off // 2) * SECOND).body
    with pytest.raises(SignatureError, match="five minutes"):
        verify(preset, SECRETS[preset], headers, BODY, (now + off) * SECOND)


@pytest.mark.parametrize("preset", ["standard", "stripe", "slack"])
@pytest.mark.parametrize("stamp", ["", "x", "-1", "1e9", "\u0661", "9" * 40])
def test_invalid_timestamps_are_refused(preset: str, stamp: str) -> None:
    """A missing or malformed timestamp is refused, even if signed."""
    headers = sign(preset, BODY, at=1_700_000_000)
    changed = {name: value.replace("1700000000", stamp) for name, value in headers.items()}
    with pytest.raises(SignatureError):
        webhook_signatures.verify(preset, SECRETS[preset], changed, BODY, 1_700_000_000 * SECOND)


def test_one_of_several_signatures_is_enough() -> None:
    """While a secret is rotated, senders sign with both; the order does not matter."""
    at = 1_700_000_000
    good = sign("standard", BODY, at=at)
    for signature in (f"v1,x {good['webhook-signature']}", f"{good['webhook-signature']} v1a,y"):
        headers = {**good, "webhook-signature": signature}
        delivery = webhook_signatures.verify(
            "standard", SECRETS["standard"], headers, BODY, at * SECOND
        )
        assert delivery.id == "one"
    stripe = sign("stripe", BODY, at=at)["stripe-signature"]
    for signature in (stripe + ",v1=00", stripe.replace("v1=", "v1=00,v0=1,v1=")):
        headers = {"stripe-signature": signature}
        assert webhook_signatures.verify("stripe", SECRETS["stripe"], headers, BODY, at * SECOND).id


def test_senders_tests_are_answered(client: httpx.Client, sender: httpx.Client) -> None:
    """GitHub's ping and Slack's challenge get a response and start nothing; unsigned they get 401."""
    ping = {**sign("github", BODY, delivery="ping"), "x-github-event": "ping"}
    assert _deliver(sender, "github", ping).status_code == 200
    body = b'{"type": "url_verification", "challenge": "abc"}'
    assert _deliver(sender, "slack", sign("slack", body), body).json() == {"challenge": "abc"}
    assert _deliver(sender, "slack", {}, body).status_code == 401
    events = client.get("/api/v1/tasks", params={"limit": 500}).json()["tasks"]
    triggers = [client.get(f"/api/v1/tasks/{task['id']}").json()["trigger"] for task in events]
    assert not [
        trigger for trigger in triggers if trigger.get("event") in ("ping", "url_verification")
    ]


def test_deliveries_that_are_not_json(client: httpx.Client, sender: httpx.Client) -> None:
    """A text is stored unchanged, also one that is called a form; a body that cannot be stored is refused."""
    body = b"deploy it & now"
    headers = {**sign("slack", body), "Content-Type": _FORM}
    accepted = _deliver(sender, "slack", headers, body)
    trigger = client.get(f"/api/v1/tasks/{accepted.json()['task']}").json()["trigger"]
    assert trigger["body"] == body.decode()
    bad = b'{"a": "\\u0000"}'
    assert _deliver(sender, "github", sign("github", bad, delivery="bad"), bad).status_code == 422


def test_a_stranger_does_not_learn_which_workflows_take_webhooks(sender: httpx.Client) -> None:
    """An unknown name, a workflow without `on: webhook` and a bad signature get the same response."""
    names = ("none", "quick", *(f"on-{preset}" for preset in SECRETS))
    refused = [sender.post(f"/hooks/{name}", content=b"{}") for name in names]
    assert {response.status_code for response in refused} == {401}
    assert len({response.text for response in refused}) == 1
    assert sender.get("/hooks/on-github").status_code == 405


@pytest.mark.parametrize("name", ["none", "quick", "on-github", "on-token"])
def test_every_refused_delivery_counts(
    running: Running, monkeypatch: pytest.MonkeyPatch, sender: httpx.Client, name: str
) -> None:
    """Every refused delivery counts against its sender, also one refused for our own secret."""
    monkeypatch.delenv("HOOK_TOKEN")
    monkeypatch.setattr(failed_auth_limiter, "MAX_FAILURES", 3)
    running.server._context.failed_auth_limiter._times.clear()  # type: ignore[union-attr]
    statuses = [sender.post(f"/hooks/{name}", content=b"{}").status_code for _ in range(5)]
    assert statuses == [503 if name == "on-token" else 401] * 3 + [429] * 2


@pytest.mark.parametrize("preset", ["github", "stripe", "slack", "token"])
def test_a_short_secret_is_refused(
    sender: httpx.Client, monkeypatch: pytest.MonkeyPatch, preset: str
) -> None:
    """A delivery signed with a secret of a few characters is refused."""
    for secret, status in (("x", 503), ("x" * 15, 503), ("x" * 16, 202)):
        monkeypatch.setenv(f"HOOK_{preset.upper()}", secret)
        headers = sign(preset, BODY, delivery=f"short-{len(secret)}", secret=secret)
        assert _deliver(sender, preset, headers).status_code == status


def test_svix_headers(client: httpx.Client, sender: httpx.Client) -> None:
    """The same scheme with `svix-` headers works; the two header names cannot be mixed."""
    named = sign("standard", BODY, delivery="svix-1")
    own = {name.replace("webhook-", "svix-"): value for name, value in named.items()}
    accepted = _deliver(sender, "standard", own)
    assert accepted.status_code == 202
    assert _deliver(sender, "standard", named).json() == accepted.json()
    trigger = client.get(f"/api/v1/tasks/{accepted.json()['task']}").json()["trigger"]
    assert trigger["id"] == "svix-1"
    mixed = {**own, "webhook-id": "svix-2"}
    assert _deliver(sender, "standard", mixed).status_code == 401


@pytest.mark.parametrize(
    ("body", "parsed", "event"),
    [
        (
            b"command=%2Fdeploy&text=now%20%C3%A4&response_url=https%3A%2F%2Fslack&text2=",
            {"command": "/deploy", "text": "now ä", "response_url": "https://slack", "text2": ""},
            None,
        ),
        (
            urlencode(
                {"payload": '{"type": "block_actions", "actions": [{"value": "7"}]}'}
            ).encode(),
            {"type": "block_actions", "actions": [{"value": "7"}]},
            "block_actions",
        ),
        (b"a=1&a=2", {"a": ["1", "2"]}, None),
        (b'{"amount": 8}', {"amount": 8}, None),
    ],
)
def test_a_form_of_slack_can_be_read_in_templates(
    client: httpx.Client, sender: httpx.Client, body: bytes, parsed: object, event: str | None
) -> None:
    """The fields of a slash command, the JSON of a button; JSON that is called a form is JSON."""
    headers = {**sign("slack", body), "Content-Type": f"{_FORM}; charset=utf-8"}
    accepted = _deliver(sender, "slack", headers, body)
    trigger = client.get(f"/api/v1/tasks/{accepted.json()['task']}").json()["trigger"]
    assert (trigger["body"], trigger["event"]) == (parsed, event)


def test_a_form_of_github_is_parsed(client: httpx.Client, sender: httpx.Client) -> None:
    """GitHub's payload in a form is the same as one in JSON; its signature is over the raw body."""
    body = urlencode({"payload": '{"amount": 7, "text": "a+b & c"}'}).encode()
    headers = {**sign("github", body, delivery="form"), "Content-Type": _FORM}
    accepted = _deliver(sender, "github", headers, body)
    trigger = client.get(f"/api/v1/tasks/{accepted.json()['task']}").json()["trigger"]
    assert trigger["body"] == {"amount": 7, "text": "a+b & c"}
    for odd in (b"payload=1&payload=2", b"other=1", b"payload=%7B"):
        headers = {**sign("github", odd, delivery=odd.decode()), "Content-Type": _FORM}
        assert _deliver(sender, "github", headers, odd).status_code == 202


@pytest.mark.parametrize("secret", [None, ""])
def test_a_missing_secret_refuses_deliveries(
    sender: httpx.Client, monkeypatch: pytest.MonkeyPatch, secret: str | None
) -> None:
    """Without its secret every delivery gets 503 with `Retry-After`."""
    if secret is None:
        monkeypatch.delenv("HOOK_TOKEN")
    else:
        monkeypatch.setenv("HOOK_TOKEN", secret)
    for headers in ({"authorization": "Bearer x"}, {}, {"x-webhook-token": ""}):
        refused = _deliver(sender, "token", headers)
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) > 0


@pytest.mark.parametrize("secret", ["whsec_", "whsec_c2hvcnQ=", "no base64"])
def test_a_guessable_secret_refuses_deliveries(
    sender: httpx.Client, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    """If the configured secret is empty or short, a delivery signed with it gets 503."""
    monkeypatch.setenv("HOOK_STANDARD", secret)
    stamp = str(int(time.time()))
    key = b"short" if secret.endswith("=") else b""
    mac = hmac.new(key, f"one.{stamp}.".encode() + BODY, hashlib.sha256).digest()
    headers = {
        "webhook-id": "one",
        "webhook-timestamp": stamp,
        "webhook-signature": "v1," + base64.b64encode(mac).decode(),
    }
    refused = _deliver(sender, "standard", headers)
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) > 0


def test_a_delivery_without_an_id_is_always_new(sender: httpx.Client) -> None:
    """A sender with a token and no delivery id creates a task each time."""
    headers = {"x-webhook-token": SECRETS["token"]}
    tasks: set[Any] = {_deliver(sender, "token", headers).json()["task"] for _ in range(2)}
    assert len(tasks) == 2
