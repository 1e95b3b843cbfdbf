"""What the program keeps from one version to the next, computed from fixed inputs.

Databases, files and remotes hold these bytes: a key that changes lets an effect happen twice, a hash that changes
asks every open approval again. `vectors.json` has them as they were when the schema 0011 was current.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest import mock

import agent.steps.spec.registry  # noqa: F401  (the real kinds)
from agent.config.mail import MailSettings
from agent.core import ids, waits
from agent.core.ids import content_hash
from agent.models.registry import ModelRegistry
from agent.server.access import sessions
from agent.steps.attempt import approval_gate, prepare
from agent.steps.types.attempt_input import RevokedError
from agent.steps.types.call_records import Intent
from agent.steps.types.outcome import Question, Waiting, WorkOffer
from agent.store.artifacts import job_paths
from agent.store.artifacts.job_paths import JobCall
from agent.tasks.rules import approvals as approval_rules
from agent.triggers.specs import triggers_of
from agent.workflows.compile.compiler import compile_text
from tests.support.attempt import Trial
from tests.support.recording_messenger import RecordingMessenger

Vectors = dict[str, Any]

WAITS: Final = (
    waits.Timer(1_700_000_000_000_000),
    waits.Timer(1_700_000_000_000_000, on_unknown="ask"),
    waits.Timer(1_700_000_000_000_000, store_error="no answer"),
    waits.Timer(1_700_000_000_000_000, turn_after="task-2"),
    waits.Signal("go"),
    waits.ChildRequest("child", {"n": 1}),
    waits.ChildRequest("child", {"n": 1}, 3),
    waits.Child("task-2"),
    waits.Child("task-2", 3),
    waits.Child(None),
    waits.Approval("approval-1"),
    waits.UnknownCall("call-1"),
    waits.UnknownCall("call-1", "approval-1"),
    waits.Items(3),
    waits.Work("work-1", "review"),
    waits.Work("work-1", "review", "approval-1"),
)
EFFECTS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "http.post": (
        "http",
        {
            "post": "http://192.0.2.1/orders",
            "json": {"ä": [1, 2.5, None, True]},
            "headers": {"X-A": "b"},
            "params": {"q": "x y"},
        },
    ),
    "http.put": ("http", {"put": "http://192.0.2.1/orders/1", "data": "plain text"}),
    "http.delete": ("http", {"delete": "http://192.0.2.1/orders/1", "expect": [204, 404]}),
    "http.idempotent": (
        "http",
        {"post": "http://192.0.2.1/pay", "json": {"amount": 12}, "idempotent": True},
    ),
    "http.reconcile": (
        "http",
        {
            "post": "http://192.0.2.1/pay",
            "json": {"amount": 12},
            "reconcile": {"get": "http://192.0.2.1/pay/1", "applied": "response.status == 200"},
        },
    ),
    "shell.argv": ("shell", {"argv": ["true", "ä b"], "env": {"A": "1"}, "stdin": "text"}),
    "shell.script": ("shell", {"script": "true", "cwd": "/"}),
    "shell.retry": ("shell", {"argv": ["true"], "inherit": ["LANG"], "retry_exit_codes": [75]}),
    "python.once": (
        "python",
        {"call": "statistics:mean", "with": {"data": [1, 2, 3]}, "effect": "once"},
    ),
    "message": ("message", {"to": "telegram:1", "text": "hello *you*"}),
    "message.several": ("message", {"to": ["telegram:1", "slack:U1"], "text": "hello"}),
    "mail": (
        "mail",
        {"to": ["Bob <bob@example.org>"], "subject": "The report", "text": "It is attached."},
    ),
    "llm": ("llm", {"model": "echo", "prompt": "Hello", "system": "Be brief", "max_tokens": 100}),
    "llm.json": ("llm", {"model": "echo", "prompt": "Hello", "json": True, "temperature": 0.2}),
    "agent": (
        "agent",
        {
            "model": "echo",
            "goal": "look",
            "tools": {"run": {"shell": {"allow": [["uptime"]]}, "effect": "none"}},
        },
    ),
}
"""A step of each kind that makes calls, and the forms of it whose requests differ."""
GATED: Final = ("http.post", "shell.argv", "python.once", "mail", "message", "llm")
WORKFLOWS: Final = {
    "plain": "name: plain\nsteps: {one: {shell: {argv: [echo, hi]}}}\n",
    "rich": """\
name: rich
description: everything that a graph holds
max_parallel: 3
timeout: 2h
priority: high
inputs: {n: {type: integer, default: 2}, words: {type: array, default: [a, b]}}
defaults: {retry: {max_attempts: 4, delay: 1s}, timeout: 5m}
steps:
  first: {http: {post: "https://example.org/x", json: {n: "{{ inputs.n }}"}}, approval: {message: Sure?, expires: 1d}}
  many: {depends_on: first, foreach: inputs.words, python: {call: "statistics:mean", with: {data: [1]}}}
  nap: {depends_on: many, wait: 5m, if: inputs.n > 1}
  ask: {depends_on: nap, input: {message: Which?, choices: [a, b]}}
  model: {depends_on: ask, llm: {model: echo, prompt: "{{ steps.ask.output.value }}"}, budget: {tokens: 100}}
  work: {depends_on: model, worker: {queue: review, with: {a: 1}, effect: once}, set_state: {last: "{{ output }}"}}
  tell: {depends_on: work, message: done, run_on: always}
output: {n: "{{ inputs.n }}"}
""",
    "triggered": """\
name: triggered
on:
  schedule:
    - {id: nightly, cron: "0 3 * * *", timezone: Europe/Berlin, catch_up: all}
    - {every: 1h}
    - {at: "2030-01-01T00:00:00Z", overlap: queue}
  watch:
    - {id: feed, every: 10m, feed: "https://example.org/feed.xml"}
    - {every: 5m, path: {path: inbox, match: "*.pdf"}}
    - {every: 5m, command: {argv: [ls]}}
steps: {one: {shell: {argv: [echo, hi]}}}
""",
}


def vectors() -> Vectors:
    """Return every vector by its name."""
    with _fixed_ids():
        effects = {name: _intents(kind, config) for name, (kind, config) in EFFECTS.items()}
        questions = {name: _gate(*EFFECTS[name]) for name in GATED}
        asking = {
            "approval": _question("approval", {"message": "Shall we?", "expires": "1d"}),
            "input": _question("input", {"message": "Which?", "choices": ["a", 2]}),
        }
        work = _offer({"queue": "pay", "with": {"n": 1, "ä": "b"}, "effect": "once", "lease": "2m"})
    return {
        "keys": _keys(),
        "waits": {waits.dump(wait): waits.to_document(wait) for wait in WAITS},
        "ended waits": [
            waits.dump_ended(waits.dump(WAITS[4]), {"value": 5}),
            waits.dump_ended(waits.dump(WAITS[10]), {"decision": "approved"}),
        ],
        "checkpoints": [
            approval_rules._wrapped_checkpoint("approval-1", None),
            approval_rules._wrapped_checkpoint("approval-1", {"page": 2}),
        ],
        "calls": effects,
        "gates": questions,
        "questions": asking,
        "work": work,
        "graphs": {name: _graph(text) for name, text in WORKFLOWS.items()},
        "triggers": _triggers(),
        "jobs": _jobs(),
        "cookies": sessions.cookie_name(Path("/srv/agent/data")),
    }


def _keys() -> Vectors:
    request = {"b": [1, 2.0, "ä"], "a": {"x": None, "y": True}}
    digest = ids.request_hash(request)
    return {
        "canonical": ids.canonical_json(request),
        "request": digest,
        "content": [content_hash("text"), content_hash(b"\x00\xff")],
        "idempotency": ids.idempotency_key("task-1", "step-1", 2, "http.post#1", digest),
        "remote": [ids.remote_key("task-1", "it", "http.post#1", digest, n) for n in (0, 1)],
        "keyed body": ids.request_hash(["/api/v1/workflows/x/tasks", {"input": {"n": 1}}]),
        "keyed owner": f"request:{ids.request_hash(['owner', 'key-1'])}",
    }


@contextmanager
def _fixed_ids() -> Iterator[None]:
    """Count ids, so that requests that hold one are the same each time."""
    numbers = iter(range(10_000))
    with mock.patch.object(ids, "new_id", lambda: f"id-{next(numbers)}"):
        yield


def _trial(kind: str, config: dict[str, Any]) -> Trial:
    trial = Trial(kind, json.loads(json.dumps(config)))
    trial.services.models = ModelRegistry(default="echo")
    trial.services.messenger = RecordingMessenger("telegram:1", "slack:U1")
    trial.services.mail = {
        "work": MailSettings.model_validate(
            {"host": "192.0.2.1", "from": "me@example.org", "user": "me", "password": "env:NOT_SET"}
        )
    }
    return trial


def _intents(kind: str, config: dict[str, Any]) -> list[Vectors]:
    """Return what goes to the ledger before the first effect of a step, which then does not happen."""
    trial = _trial(kind, config)

    def stop(_: Intent) -> None:
        raise RevokedError("the effect does not happen")

    trial.journal.on_intend = stop
    asyncio.run(trial.attempt())
    assert trial.journal.intents, f"{kind} made no call"
    return [
        {
            "action": intent.action,
            "request_hash": intent.request_hash,
            "idempotency_key": intent.idempotency_key,
            "remote_key": intent.remote_key,
            "on_unknown": intent.on_unknown,
        }
        for _, intent in trial.journal.intents
    ]


def _gate(kind: str, config: dict[str, Any]) -> Vectors:
    """Return what a gate before a step asks about, and the hash that an answer is bound to."""
    trial = _trial(kind, config)
    prepared = prepare.prepare_step(trial.step)
    request = approval_gate.gated_request(kind, prepare.rendered_config(trial.claimed(), prepared))
    return {"request": request, "hash": ids.request_hash(request)}


def _question(kind: str, config: dict[str, Any]) -> Vectors:
    outcome = asyncio.run(_trial(kind, config).attempt())
    assert isinstance(outcome, Waiting) and isinstance(outcome.on, Question)
    return {"request": outcome.on.request, "hash": ids.request_hash(outcome.on.request)}


def _offer(config: dict[str, Any]) -> Vectors:
    outcome = asyncio.run(_trial("worker", config).attempt())
    assert isinstance(outcome, Waiting) and isinstance(outcome.on, WorkOffer)
    intent = outcome.on.intent
    assert intent is not None
    return {
        "input": outcome.on.input_text,
        "action": intent.action,
        "request_hash": intent.request_hash,
        "idempotency_key": intent.idempotency_key,
        "remote_key": intent.remote_key,
    }


def _graph(text: str) -> Vectors:
    graph = compile_text(text, "golden.yaml")
    return {"hash": graph.hash, "text": graph.text}


def _triggers() -> Vectors:
    graph = compile_text(WORKFLOWS["triggered"], "golden.yaml")
    return {
        spec.id: {"spec": spec.spec, "spec_hash": spec.spec_hash, "timing_hash": spec.timing_hash}
        for spec in triggers_of(graph)
    }


def _jobs() -> Vectors:
    call = JobCall("remote-key-1", 2, "call-1")
    return {
        "group": job_paths.group("file:///jobs", call.remote_key),
        "directory": job_paths.directory("file:///jobs", call),
    }
