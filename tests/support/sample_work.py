"""More of a sample dashboard: large and branched tasks, spend, fates of instants and versions."""

import json
from datetime import UTC, datetime, timedelta

from agent.core.clock import SECOND
from agent.core.ids import new_id
from agent.store.db.database import Connection
from agent.store.engine import workflow_versions
from tests.support.sample_dashboard import PAY_INVOICE, Sample
from tests.support.server import Running, wait_for

TRIAGE = """\
name: triage
description: Read what came in and sort it
steps:
  fetch: {shell: {argv: [echo, twelve lines], effect: none}}
  lines:
    depends_on: [fetch]
    foreach: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    shell: {argv: [echo, "{{ item }}"], effect: none}
  read:
    depends_on: [fetch]
    shell: {argv: [sh, -c, "echo opening the ledger; echo 'line 7 has no amount' >&2; exit 3"], effect: none}
    retry: {max_attempts: 2, delay: 0s, jitter: false}
  weekend: {depends_on: [fetch], if: "false", shell: {argv: [echo, x], effect: none}}
  book: {depends_on: [lines, read], shell: {argv: [echo, booked]}}
  tell: {depends_on: [book, weekend], run_on: always, shell: {argv: [echo, told], effect: none}}
"""
_MODELS = ("claude-sonnet-5-5", "claude-haiku-5-5")
_FATES = (
    "started",
    "started",
    "late",
    "started",
    "missed",
    "skipped",
    "started",
    "started",
    "queued",
)


def nightly(count: int = 200) -> str:
    """Return a large workflow in which one step fails."""
    lines = ["name: nightly-import", "max_parallel: 8", "fail_fast: false", "steps:"]
    for number in range(count):
        argv = "[sh, -c, 'exit 1']" if number == 57 else "['true']"
        parents = "" if number < 10 else f"depends_on: [part_{number - 10}], "
        lines.append(
            f"  part_{number}: {{{parents}shell: {{argv: {argv}, effect: none}}, retry: {{max_attempts: 1}}}}"
        )
    return "\n".join(lines)


REVIEW = """\
name: review-contract
steps:
  review: {worker: {queue: reviews, with: {page: 3}}, retry: {max_attempts: 1}}
"""


def _fill_queue(running: Running) -> None:
    """Leave a dead letter, a lease and waiting work in a queue."""
    running.add_workflow(REVIEW)
    claim = {"queues": ["reviews"], "worker": "desk:4711", "wait": 30, "start": True}
    with running.client() as client:
        for _ in range(3):
            client.post("/api/v1/workflows/review-contract/tasks", json={"input": {}})
        (work,) = client.post("/api/v1/work/claim", json=claim).json()["work"]
        failure = {"message": "page 3 cannot be read", "code": "unreadable", "retryable": False}
        client.post(f"/api/v1/work/{work['lease_id']}/fail", json=failure)
        client.post("/api/v1/work/claim", json=claim)


def fill_work(sample: Sample) -> None:
    """Add what the pages of tasks, workflows, schedules and spend show."""
    running = sample.running
    for text in (TRIAGE, nightly(), PAY_INVOICE.replace("Check an invoice", "Check a bill")):
        running.add_workflow(text)
    with running.client() as client:
        for name in ("triage", "nightly-import"):
            sample.start(client, name)
        for name in ("triage", "nightly-import"):
            running.wait_for_task(client, sample.tasks[name], "failed")
        task_id = sample.tasks["triage"]
        wait_for(lambda: client.get(f"/api/v1/tasks/{task_id}").json()["ended_at"])
    _fill_queue(running)
    now = running.database.clock.now()
    with running.database.connect("writer") as tx, tx.transaction():
        _spend(tx, now)
        _talk(tx, sample.tasks["tidy-downloads"], now)
        _fates(tx, sample.tasks["tidy-downloads"], now)
        assert workflow_versions.latest(tx, "pay-invoice") is not None


def _spend(tx: Connection, now: int) -> None:
    today = datetime.fromtimestamp(now / SECOND, UTC).date()
    for back in range(30):
        microusd = (back * 7919) % 900_000 + 20_000
        tx.execute(
            "INSERT INTO daily_spend (day, tokens_used, microusd_used, tokens_reserved,"
            " microusd_reserved) VALUES (:day, :tokens, :microusd, 0, 0) ON CONFLICT DO NOTHING",
            day=(today - timedelta(days=back)).isoformat(),
            tokens=microusd // 3,
            microusd=microusd,
        )


def _talk(tx: Connection, task_id: str, now: int) -> None:
    """Record a conversation of a model in a step."""
    ((step_id,),) = tx.query(
        "SELECT id FROM steps WHERE task_id = :id AND name = 'move'", id=task_id
    )
    turns = [
        (
            "model",
            {"turn": 1},
            {
                "text": "I look at the folder first.",
                "tool_uses": [{"name": "list_files", "arguments": {"path": "Downloads"}}],
            },
        ),
        (
            "tool.list_files",
            {"tool": "list_files", "arguments": {"path": "Downloads"}},
            {"files": ["a.pdf", "b.jpg"]},
        ),
        (
            "model",
            {"turn": 2},
            {"text": "There are two files. I moved both of them.", "tool_uses": []},
        ),
    ]
    for number, (action, request, response) in enumerate(turns, 11):
        call = new_id()
        model = _MODELS[number % 2] if action == "model" else None
        tx.execute(
            "INSERT INTO tool_calls (id, task_id, step_id, number, attempt, action, request, response,"
            " idempotency_key, remote_key, request_hash, on_unknown, send_by, expires_at, model,"
            " tokens_in, tokens_out, cost_microusd, latency_ms, created_at) VALUES (:id, :task, :step,"
            " :number, 1, :action, :request, :response, :id, 'r', 'h', 'retry', 1, 1, :model,"
            " :tokens_in, :tokens_out, :cost, 1840, :now)",
            id=call,
            task=task_id,
            step=step_id,
            number=number,
            action=action,
            request=json.dumps(request),
            response=json.dumps(response),
            model=model,
            tokens_in=1204 if model else None,
            tokens_out=96 if model else None,
            cost=4210 if model else None,
            now=now,
        )
        tx.execute(
            "INSERT INTO idempotency_outcomes (idempotency_key, tool_call_id, status)"
            " VALUES (:id, :id, 'succeeded')",
            id=call,
        )


def _fates(tx: Connection, task_id: str, now: int) -> None:
    """Record what became of the last instants of a schedule."""
    for back, status in enumerate(_FATES, 1):
        at = now - back * 86_400 * SECOND
        tx.execute(
            "INSERT INTO firings (trigger_id, key, nominal_at, due_at, status, reason, task_id,"
            " recorded_at) VALUES (:trigger, :key, :at, :at, :status, :reason, :task, :at)",
            trigger="backup:nightly",
            key=f"{at}",
            at=at,
            status=status,
            task=task_id if status in ("started", "late") else None,
            reason={"missed": "the agent was down", "skipped": "the operator skipped it"}.get(
                status
            ),
        )
