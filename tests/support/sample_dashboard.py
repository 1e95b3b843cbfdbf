"""A dashboard with something on every page: for pictures, for axe, and for tests in a browser."""

import json
from itertools import count
from typing import Any

import httpx

from agent.config.execution import StepSettings
from agent.core.clock import SECOND
from agent.store.engine import trigger_rows
from tests.support.recorded_triggers import record_workflow
from tests.support.server import Running, wait_for

PAY_INVOICE = """\
name: pay-invoice
description: Check an invoice and pay it once it is approved
inputs:
  number: {type: integer, default: 4711}
  supplier: {type: string, default: "Müller & Söhne GmbH"}
  amount: {type: number, default: 249.5}
steps:
  fetch: {shell: {argv: [echo, "invoice {{ inputs.number }}"], effect: none}}
  check_amount: {depends_on: [fetch], shell: {argv: [echo, "fine"], effect: none}}
  check_supplier: {depends_on: [fetch], shell: {argv: [echo, "known"], effect: none}}
  pay:
    depends_on: [check_amount, check_supplier]
    approval:
      message: "Pay invoice {{ inputs.number }} to {{ inputs.supplier }}?"
      editable: [argv, env]
      expires: 7d
    shell:
      argv: [echo, pay, "--to", "{{ inputs.supplier }}", "--amount", "{{ inputs.amount }}"]
      env: {REFERENCE: "RE-{{ inputs.number }}"}
      effect: none
  tell: {depends_on: [pay], shell: {argv: [echo, "paid"], effect: none}}
output: "{{ steps.pay.output.stdout | trim }}"
"""
TRIP = """\
name: book-trip
description: Ask for a trip's details and book it
steps:
  details:
    input:
      message: Where do you want to go, and for how long?
      schema:
        type: object
        required: [city, nights]
        properties:
          city: {type: string, title: City, description: The name of a place.}
          nights: {type: integer, minimum: 1, maximum: 30, title: Nights}
          room: {enum: [single, double], title: Room, default: double}
          breakfast: {type: boolean, title: Breakfast}
output: "{{ steps.details.output.value }}"
"""
CHOICE = """\
name: pick-cover
steps:
  cover: {input: {message: "Which cover goes to print?", choices: [Sea, Forest, Town]}}
output: "{{ steps.cover.output.value }}"
"""
LOST = """\
name: send-parcel
steps:
  book:
    python: {call: "tests.support.step_functions:cut_off", with: {token: parcel}}
    timeout: 200ms
    retry: {max_attempts: 2, delay: 1ms}
output: "{{ steps.book.output }}"
"""
BROKEN = """\
name: read-letters
inputs:
  folder: {type: string, default: inbox/letters}
steps:
  list: {shell: {argv: [echo, "12 letters in {{ inputs.folder }}"], effect: none}}
  read:
    depends_on: [list]
    shell: {script: "echo reading letter 7; echo 'letter 7: no text layer, and no OCR installed' >&2; exit 3", effect: none}
    retry: {max_attempts: 2, delay: 1ms}
  book: {depends_on: [read], shell: {argv: [echo, booked], effect: none}}
"""
SHOUTING = """\
name: read-letters
inputs: {folder: {type: string}}
steps:
  read:
    shell: {script: 'echo "$TEXT" >&2; exit 3', env: {TEXT: "{{ inputs.folder }}"}, effect: none}
    retry: {max_attempts: 1}
"""
SLOW = """\
name: index-photos
inputs: {album: {type: string, default: Summer}}
steps:
  scan: {shell: {argv: [sleep, "600"], effect: none}}
"""
LATER = """\
name: weekly-report
steps:
  until: {wait: 6h}
"""
SIGNALLED = """\
name: deploy-site
steps:
  build: {shell: {argv: [echo, built], effect: none}}
  go: {depends_on: [build], wait: {signal: go}}
"""
QUICK = """\
name: tidy-downloads
inputs: {folder: {type: string, default: Downloads}}
steps:
  move: {shell: {argv: [echo, "{{ inputs.folder }}"], effect: none}}
  count: {depends_on: [move], wait: 1ms}
output: "{{ steps.move.output.stdout | trim }}"
"""
SUMMARY = """\
name: summarize-letter
budget: {tokens: 10, on_exhausted: pause}
steps:
  think: {llm: {model: echo, prompt: "Summarize this letter."}}
output: "{{ steps.think.output }}"
"""
SCHEDULED = """\
name: backup
on:
  schedule: {id: nightly, cron: "0 3 * * *", timezone: Europe/Berlin}
steps:
  copy: {wait: 1ms}
"""
WATCHED = """\
name: read-news
on:
  watch: {id: feed, feed: "https://example.com/feed.xml", every: 30m}
steps:
  read: {wait: 1ms}
"""
WORKFLOWS = (PAY_INVOICE, TRIP, CHOICE, BROKEN, SLOW, LATER, SIGNALLED, QUICK, SUMMARY)


NASTY = "<img src=x id=injected onerror='injected=1'>\"'}}{{ 7*7 }}"
"""A text that would do harm where it is not escaped."""

_tokens = count(1)

STEPS = StepSettings(send_window_seconds=0.5)
"""An effect without a result becomes a question soon, not after ten seconds."""


class Sample:
    """The tasks of a filled dashboard, by workflow."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.tasks: dict[str, str] = {}

    def start(self, client: httpx.Client, workflow: str, **given: Any) -> str:
        """Start a task and return its id."""
        created = client.post(f"/api/v1/workflows/{workflow}/tasks", json={"input": given})
        assert created.status_code == 201, created.text
        task_id = str(created.json()["id"])
        self.tasks[workflow] = task_id
        return task_id


def question_of(client: httpx.Client, task_id: str) -> dict[str, Any]:
    """Wait for the question of a task."""

    def poll() -> dict[str, Any] | None:
        found = client.get("/api/v1/approvals", params={"task": task_id}).json()["approvals"]
        return found[0] if found else None

    asked: dict[str, Any] = wait_for(poll)
    return asked


def _lost_effect() -> str:
    """Return a workflow whose effect is lost, with a token of its own.

    Its function acts once for each token, and another sample of this process may have used one.
    """
    return LOST.replace("token: parcel", f"token: parcel-{next(_tokens)}")


def fill(running: Running) -> Sample:
    """Fill a dashboard: questions of each kind, tasks in each state, triggers in trouble."""
    for text in (*WORKFLOWS, _lost_effect()):
        running.add_workflow(text)
    sample = Sample(running)
    with running.client() as client:
        earlier = sample.start(client, "pay-invoice", number=4610, amount=180)
        asked = question_of(client, earlier)
        client.post(f"/api/v1/approvals/{asked['id']}/approve", json={"comment": "as agreed"})
        for folder in ("Downloads", "Desktop"):
            done = sample.start(client, "tidy-downloads", folder=folder)
        broken = sample.start(client, "read-letters")
        waiting = [
            sample.start(client, name)
            for name in ("pay-invoice", "book-trip", "pick-cover", "send-parcel")
        ]
        for name in ("index-photos", "weekly-report", "deploy-site"):
            sample.start(client, name)
        client.post(f"/api/v1/tasks/{sample.start(client, 'deploy-site')}/cancel")
        paused = sample.start(client, "weekly-report")
        wait_for(
            lambda: (
                client.post(
                    f"/api/v1/tasks/{paused}/pause", json={"reason": "until the numbers are in"}
                ).is_success
            )
        )
        summary = sample.start(client, "summarize-letter")
        running.wait_for_task(client, done, "succeeded")
        running.wait_for_task(client, broken, "failed")
        running.wait_for_task(client, summary, "paused")
        for task_id in waiting:
            question_of(client, task_id)
    _add_triggers(running)
    return sample


def _add_triggers(running: Running, **changes: Any) -> None:
    """Record a watcher whose polls fail, and a schedule."""
    for text in (SCHEDULED, WATCHED):
        record_workflow(running.database, text)
    now = running.database.clock.now()
    failed = {
        "failures": 4,
        "alert": "failed",
        "last_error": "GET https://example.com/feed.xml: 503 Service Unavailable",
        "last_ok_at": now - 7200 * SECOND,
        **changes,
    }
    with running.database.connect("writer") as tx, tx.transaction():
        trigger_rows.update(tx, [("read-news:feed", failed)])


def fill_nasty(running: Running) -> Sample:
    """Fill a dashboard with texts that would do harm where they are not escaped."""
    quoted = json.dumps(NASTY)
    texts = {
        "pay-invoice": PAY_INVOICE.replace(
            "description: Check an invoice and pay it once it is approved",
            f"description: {json.dumps(NASTY.replace('{{', '{ {'))}",
        ),
        "book-trip": TRIP.replace("title: City", f"title: {quoted}").replace(
            "The name of a place.", quoted
        ),
        "pick-cover": CHOICE.replace("[Sea, Forest, Town]", f"[Sea, {quoted}]"),
        "read-letters": SHOUTING,
    }
    sample = Sample(running)
    for text in (*texts.values(), _lost_effect(), SLOW, LATER, SIGNALLED, QUICK):
        running.add_workflow(text)
    with running.client() as client:
        for name in ("book-trip", "pick-cover", "send-parcel", "index-photos"):
            sample.start(client, name)
        for name, field in (
            ("tidy-downloads", "folder"),
            ("pay-invoice", "supplier"),
            ("read-letters", "folder"),
        ):
            sample.start(client, name, **{field: NASTY})
        asked = question_of(client, sample.tasks["pay-invoice"])
        client.post(f"/api/v1/approvals/{asked['id']}/deny", json={"reason": NASTY})
        sample.start(client, "pay-invoice", supplier=NASTY)
        question_of(client, sample.tasks["send-parcel"])
        running.wait_for_task(client, sample.tasks["read-letters"], "failed")
        paused = sample.start(client, "weekly-report")
        wait_for(
            lambda: client.post(f"/api/v1/tasks/{paused}/pause", json={"reason": NASTY}).is_success
        )
    _add_triggers(running, last_error=NASTY)
    return sample
