"""Links that answer a question, and programs that answer with a signature."""

import json
import re
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from agent.channels.link_signing import BadLinkError, key_of, link_token, read_link
from agent.config.channels import ChannelSettings, WebhookSettings
from agent.core.clock import SECOND
from agent.server.access import failed_auth_limiter
from agent.store.db.database import Database
from tests.support.server import Running, wait_for

SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
KEY = key_of(SECRET)
NASTY = "<script>alert('x')</script>&\"'"
PAYING = """\
name: paying
inputs: {what: {type: string, default: lunch}}
steps:
  pay:
    approval: {message: "Pay for {{ inputs.what }}?", editable: [argv, env], who: "{{ inputs.who }}"}
    shell: {argv: [echo, "{{ inputs.what }}"], env: {AMOUNT: "12"}, effect: none}
output: "{{ steps.pay.output.stdout | trim }}"
"""
ASKING = """\
name: asking
steps:
  which: {input: {message: Which?, choices: [red, 7]}}
  many: {depends_on: [which], input: {message: How many?, schema: {type: integer, minimum: 1}}}
output: {which: "{{ steps.which.output.value }}", many: "{{ steps.many.output.value }}"}
"""


BOOKING = """\
name: booking
steps:
  stay:
    input:
      message: How long, and where?
      schema:
        type: object
        required: [nights, room, name]
        properties:
          nights: {type: integer, minimum: 1, title: Nights, description: How many you stay.}
          room: {enum: [single, double, 3]}
          breakfast: {type: boolean}
          name: {type: string}
          price: {type: number}
output: "{{ steps.stay.output.value }}"
"""


@pytest.fixture(scope="module")
def linked(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Return a running server with a webhook's secret, which links need."""
    home = tmp_path_factory.mktemp("linked")
    shutil.copyfile(sqlite_template, home / "agent.db")
    (home / "agent.db").chmod(0o600)
    (home / "secret").write_text(SECRET)
    running = Running(Database(f"sqlite:///{home}/agent.db"), home)
    webhook = WebhookSettings(url="http://127.0.0.1:9/", secret=f"file:{home}/secret")
    running.settings = running.settings.model_copy(
        update={"channels": ChannelSettings(webhook=webhook)}
    )
    with running:
        for text in (PAYING.replace('"{{ inputs.who }}"', "[webhook, api]"), ASKING, BOOKING):
            running.add_workflow(text)
        running.add_workflow(
            PAYING.replace("name: paying", "name: others").replace('"{{ inputs.who }}"', "telegram")
        )
        yield running


@pytest.fixture
def owner(linked: Running) -> Iterator[httpx.Client]:
    """Return a client with the owner's token."""
    with linked.client() as client:
        yield client


@pytest.fixture
def person(linked: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    """Return a client without a token, like a browser."""
    monkeypatch.setattr(failed_auth_limiter, "MAX_FAILURES", 100_000)
    with linked.client("") as client:
        yield client


def _ask(owner: httpx.Client, workflow: str, **inputs: str) -> str:
    started = owner.post(f"/api/v1/workflows/{workflow}/tasks", json={"input": inputs})
    assert started.status_code == 201, started.text
    task: str = started.json()["id"]
    return task


def _question(owner: httpx.Client, task: str, other_than: str = "") -> dict[str, Any]:
    def look() -> Any:
        approvals = owner.get("/api/v1/approvals", params={"task": task}).json()["approvals"]
        return next((approval for approval in approvals if approval["id"] != other_than), None)

    question: dict[str, Any] = wait_for(look)
    return question


def _link(approval: dict[str, Any], seconds: float = 3600) -> str:
    now = int(time.time()) * SECOND
    return f"/links/{link_token(KEY, approval['id'], now + int(seconds) * SECOND)}"


def _seen(page: httpx.Response) -> str:
    return unescape(re.sub(r"<[^>]*>", " ", page.text))


def test_get_changes_nothing_and_post_decides(
    linked: Running, owner: httpx.Client, person: httpx.Client
) -> None:
    """Following a link changes nothing; the form decides, and the page shows the decision."""
    task = _ask(owner, "paying")
    approval = _question(owner, task)
    link = _link(approval)
    for _ in range(3):
        shown = person.get(link)
        assert shown.status_code == 200
        assert person.head(link).status_code == 200
    assert "Pay for lunch?" in _seen(shown)
    assert '"echo"' in _seen(shown), "what will be done is there in full"
    assert owner.get(f"/api/v1/approvals/{approval['id']}").json()["status"] == "pending"
    # A browser that hides where a form comes from sends a null origin.
    posted = person.post(
        link, data={"decision": "approve", "comment": "fine"}, headers={"Origin": "null"}
    )
    assert posted.status_code == 303
    after = person.get(httpx.URL(link).join(posted.headers["location"]))
    assert "✓ approved by link (webhook): fine" in _seen(after)
    assert "<form" not in after.text
    assert linked.wait_for_task(owner, task, "succeeded")["output"] == "lunch"


def test_a_link_decides_once(linked: Running, owner: httpx.Client, person: httpx.Client) -> None:
    """A second answer by a link changes nothing, and its page shows the first decision."""
    task = _ask(owner, "paying")
    link = _link(_question(owner, task))
    assert person.post(link, data={"decision": "deny"}).status_code == 303
    late = person.post(link, data={"decision": "approve"})
    assert late.status_code == 409
    assert "came too late: it was denied already by link (webhook)" in _seen(late)
    linked.wait_for_task(owner, task, "failed")


def test_the_page_leaks_nothing_and_loads_nothing(
    owner: httpx.Client, person: httpx.Client
) -> None:
    """Values are escaped; the page loads nothing, runs no script and sends no referrer."""
    page = person.get(_link(_question(owner, _ask(owner, "paying", what=NASTY))))
    assert NASTY in _seen(page)
    assert "<script" not in page.text
    assert "alert('x')" not in page.text
    assert not re.search(r"\b(src|href|on\w+)=", page.text)
    assert page.headers["cache-control"] == "no-store"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["x-content-type-options"] == "nosniff"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


def test_bidirectional_characters_are_escaped(owner: httpx.Client, person: httpx.Client) -> None:
    """A character that changes the writing direction is shown escaped."""
    what = "evil\u202efdp.exe"
    link = _link(_question(owner, _ask(owner, "paying", what=what)))
    shown = person.get(link).text
    assert "\u202e" not in shown
    assert shown.count(r"evil\u202efdp.exe") == 3, "the message, what is done, and its field"
    assert person.post(link, data={"decision": "deny", "comment": what}).status_code == 303
    assert "\u202e" not in person.get(link).text


HIDDEN = "\u200e\u200f\u061c\u200b\u2060\ufeff\xad\U000e0041\u3164\u2800"
SLY = f"""\
name: sly
steps:
  pay:
    approval: {{message: "Pay?{HIDDEN}", editable: [cwd, argv, env.NOTE]}}
    shell:
      argv: [echo, "x{HIDDEN}y"]
      cwd: "/tmp"
      env: {{NOTE: "note{HIDDEN}", "KEY{HIDDEN}": "value"}}
      effect: none
  choose: {{depends_on: [pay], input: {{message: Which?, choices: ["a", "a{HIDDEN}", ["b{HIDDEN}"]]}}}}
  fill:
    depends_on: [choose]
    input:
      message: What?
      schema:
        type: object
        properties:
          size: {{enum: ["s{HIDDEN}", "m"], title: "Size{HIDDEN}", description: "Hint{HIDDEN}"}}
          "n{HIDDEN}": {{type: string, default: plain}}
  write:
    depends_on: [fill]
    input:
      message: Write it.
      schema: {{type: object, properties: {{n: {{type: string, default: "d{HIDDEN}"}}}}}}
output: ["{{{{ steps.choose.output.value }}}}", "{{{{ steps.fill.output.value }}}}"]
"""


class _Form(HTMLParser):
    """Reads a page like a browser: the values it would send, and the text it shows."""

    def __init__(self, page: httpx.Response) -> None:
        super().__init__()
        self.sent: dict[str, str] = {}
        self.options: list[str] = []
        self.seen = ""
        self._area: str | None = None
        self.feed(page.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "textarea":
            self._area = attributes["name"]
            self.sent[self._area] = ""
        elif tag == "option":
            self.options.append(attributes["value"])
        elif tag == "input" and "type" not in attributes:
            self.sent[attributes["name"]] = attributes["value"]
            self.seen += attributes["value"]

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            assert self._area is not None
            # A line break right behind the tag is no part of the text.
            self.sent[self._area] = self.sent[self._area].removeprefix("\n").replace("\n", "\r\n")
            self._area = None

    def handle_data(self, data: str) -> None:
        self.seen += data
        if self._area is not None:
            self.sent[self._area] += data


def test_a_form_hides_nothing_and_changes_nothing(
    linked: Running, owner: httpx.Client, person: httpx.Client
) -> None:
    """Titles, hints, choices, defaults and fields show every character and send values back unchanged."""
    linked.add_workflow(SLY)
    task = _ask(owner, "sly")
    pay = _question(owner, task)
    form = _Form(person.get(_link(pay)))
    assert not set(HIDDEN) & set(form.seen)
    assert form.seen.count(r"\u200e\u200f\u061c\u200b\u2060\ufeff") >= 6
    assert "since it has invisible characters" in form.seen
    assert form.sent["edit:cwd"] == "/tmp"
    assert json.loads(form.sent["edit:env.NOTE"]) == f"note{HIDDEN}"
    refused = person.post(_link(pay), data={"decision": "approve", "edit:env.NOTE": "7"})
    assert (refused.status_code, "text in quotes" in _seen(refused)) == (422, True)
    posted = person.post(_link(pay), data={"decision": "approve", **form.sent})
    assert posted.status_code == 303, posted.text
    decided = owner.get(f"/api/v1/approvals/{pay['id']}").json()
    assert decided["decision"]["edits"] is None, "what was not touched is not changed"
    choose = _question(owner, task)
    form = _Form(person.get(_link(choose)))
    assert not set(HIDDEN) & set(form.seen)
    assert person.post(_link(choose), data={"decision": "answer", "choice": "1"}).status_code == 303
    fill = _question(owner, task, choose["id"])
    form = _Form(person.get(_link(fill)))
    assert not set(HIDDEN) & set(form.seen)
    for words in (r"Size\u200e", r"Hint\u200e", r"s\u200e", r"n\u200e"):
        assert words in form.seen
    values = {**form.sent, "value:size": form.options[1]}
    assert person.post(_link(fill), data={"decision": "answer", **values}).status_code == 303
    write = _question(owner, task, fill["id"])
    form = _Form(person.get(_link(write)))
    assert not set(HIDDEN) & set(form.seen)
    assert "value" in form.sent, "a default that cannot be shown in a field is written as JSON"
    value = json.dumps({"n": f"d{HIDDEN}"})
    assert person.post(_link(write), data={"decision": "answer", "value": value}).status_code == 303
    output = linked.wait_for_task(owner, task, "succeeded")["output"]
    assert output == [f"a{HIDDEN}", {"size": f"s{HIDDEN}", f"n{HIDDEN}": "plain"}]


def test_editable_values_can_be_edited(
    linked: Running, owner: httpx.Client, person: httpx.Client
) -> None:
    """Edits of the form are approved; after a mistake the form keeps the typed values."""
    task = _ask(owner, "paying")
    link = _link(_question(owner, task))
    refused = person.post(link, data={"decision": "approve", "edit:argv": "[echo", "comment": "hm"})
    assert refused.status_code == 422
    assert "For argv give JSON" in _seen(refused)
    assert "[echo" in _seen(refused)
    assert ">\nhm<" in refused.text
    unchanged = json.dumps({"AMOUNT": "12"}, indent=2).replace("\n", "\r\n")
    done = {"decision": "approve", "edit:argv": '["echo", "dinner"]', "edit:env": unchanged}
    assert person.post(link, data=done).status_code == 303
    assert linked.wait_for_task(owner, task, "succeeded")["output"] == "dinner"
    decided = owner.get("/api/v1/approvals", params={"task": task, "all": True}).json()
    assert decided["approvals"][0]["decision"]["edits"] == {"argv": ["echo", "dinner"]}


def test_values_by_a_form(linked: Running, owner: httpx.Client, person: httpx.Client) -> None:
    """A choice or a typed value answers the question; an invalid one is explained."""
    task = _ask(owner, "asking")
    which = _question(owner, task)
    link = _link(which)
    assert ">red<" in person.get(link).text
    for form in ({}, {"decision": "approve"}, {"decision": "answer", "choice": "2"}):
        assert person.post(link, data=form).status_code == 422
    assert person.post(link, data={"decision": "answer", "choice": "1"}).status_code == 303
    link = _link(_question(owner, task, which["id"]))
    refused = person.post(link, data={"decision": "answer", "value": "0"})
    assert (refused.status_code, "minimum" in _seen(refused)) == (422, True)
    assert person.post(link, data={"decision": "answer", "value": "3"}).status_code == 303
    assert linked.wait_for_task(owner, task, "succeeded")["output"] == {"which": 7, "many": 3}


def test_a_flat_object_has_a_field_for_each_member(
    linked: Running, owner: httpx.Client, person: httpx.Client
) -> None:
    """Each member is a form field; an invalid answer keeps the typed values."""
    task = _ask(owner, "booking")
    link = _link(_question(owner, task))
    shown = person.get(link)
    for words in ("Nights", "How many you stay.", "breakfast (optional)", "double"):
        assert words in _seen(shown)
    assert '"properties"' not in _seen(shown)
    form = {"decision": "answer", "value:nights": "some", "value:room": "double"}
    refused = person.post(link, data=form)
    assert refused.status_code == 422
    assert 'value="some"' in refused.text
    assert '<option value="double" selected>double</option>' in refused.text
    done = person.post(link, data=form | {"value:nights": "3", "value:breakfast": "no"})
    assert done.status_code == 303
    assert linked.wait_for_task(owner, task, "succeeded")["output"] == {
        "nights": 3, "room": "double", "breakfast": False, "name": ""
    }  # fmt: skip


def test_too_deeply_nested_values_are_refused(owner: httpx.Client, person: httpx.Client) -> None:
    """A value nested too deeply is an invalid answer, not a defect."""
    task = _ask(owner, "asking")
    first = _question(owner, task)
    assert person.post(_link(first), data={"decision": "answer", "choice": "0"}).status_code == 303
    second = _question(owner, task, other_than=first["id"])
    refused = person.post(_link(second), data={"decision": "answer", "value": "[" * 100_000})
    assert refused.status_code == 422


def test_invalid_links_are_refused(owner: httpx.Client, person: httpx.Client) -> None:
    """A wrong signature, a changed question or time, and an expired link get the same refusal."""
    task = _ask(owner, "paying")
    approval = _question(owner, task)
    good = _link(approval)
    head, stamp, signature = good.rsplit(".", 2)
    later = f"{head}.{int(stamp) + 86_400}.{signature}"
    other = good.replace(approval["id"], "0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a11")
    for link in (later, other, good[:-1], good + "=", "/links/x", f"{head}..{signature}"):
        for answer in (person.get(link), person.post(link, data={"decision": "approve"})):
            assert answer.status_code == 404
            assert "This link is not valid" in _seen(answer)
    over = _link(approval, -1)
    assert "This link has expired" in _seen(person.get(over))
    assert person.post(over, data={"decision": "approve"}).status_code == 404
    assert owner.get(f"/api/v1/approvals/{approval['id']}").json()["status"] == "pending"


def test_a_question_for_others_is_not_answered_here(
    owner: httpx.Client, person: httpx.Client
) -> None:
    """If `who` does not list the webhook, the link shows the question and cannot decide it."""
    link = _link(_question(owner, _ask(owner, "others")))
    refused = person.post(link, data={"decision": "approve"})
    assert refused.status_code == 403
    assert "Link may not answer this from webhook" in _seen(refused)


def test_guessing_links_is_limited(linked: Running) -> None:
    """Invalid links count as failed logins."""
    with linked.client("") as guesser:
        answers = [
            guesser.get("/links/guess").status_code
            for _ in range(failed_auth_limiter.MAX_FAILURES + 5)
        ]
    assert answers[-1] == 429


def test_without_a_webhook_there_are_no_links(running: Running) -> None:
    """Without a configured secret, links and signed answers are 404."""
    with running.client("") as person:
        assert person.get("/links/x").status_code == 404
        assert person.post("/answers", content=b"{}").status_code == 404


def _signed(body: Any, *, secret: str = SECRET, at: float | None = None) -> Any:
    text = json.dumps(body)
    moment = datetime.fromtimestamp(time.time() if at is None else at, UTC)
    return {
        "content": text,
        "headers": {
            "content-type": "application/json",
            "webhook-id": "answer-1",
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": Webhook(secret).sign("answer-1", moment, text),
        },
    }


def test_programs_answer_with_a_signature(
    linked: Running, owner: httpx.Client, person: httpx.Client
) -> None:
    """An answer signed with the webhook's secret decides once; a repeated one reports that."""
    task = _ask(owner, "paying")
    approval = _question(owner, task)
    body = {"approval": approval["id"], "decision": "approve", "comment": "by rule 7"}
    for bad in (
        _signed(body, secret="whsec_" + "A" * 32),
        _signed(body, at=time.time() - 400),
        {"content": json.dumps(body)},
    ):
        assert person.post("/answers", **bad).status_code == 401
    done = person.post("/answers", **_signed(body))
    assert (done.status_code, done.json()["status"]) == (200, "approved")
    again = person.post("/answers", **_signed(body))
    assert again.status_code == 409
    assert again.json()["decided"] == {"status": "approved", "by": "program", "channel": "webhook"}
    linked.wait_for_task(owner, task, "succeeded")


def test_a_notification_cannot_be_replayed_as_an_answer(person: httpx.Client) -> None:
    """A notification signed by the agent, or a document of another shape, is not an answer."""
    bodies: list[Any] = [{"type": "approval.requested", "data": {}}, {"approval": "x"}, []]
    for body in bodies:
        refused = person.post("/answers", **_signed(body))
        assert refused.status_code == 422
    nobody = {"approval": "x", "decision": "approve"}
    assert person.post("/answers", **_signed(nobody)).status_code == 404


def test_a_link_carries_its_question_and_expiry() -> None:
    """A link's content is read back unchanged until it expires."""
    token = link_token(KEY, "abc", 100 * SECOND)
    assert read_link(KEY, token, 99 * SECOND).approval_id == "abc"
    with pytest.raises(BadLinkError, match="has expired"):
        read_link(KEY, token, 100 * SECOND)
    with pytest.raises(BadLinkError, match="not valid"):
        read_link(b"another key of enough bytes", token, 0)
