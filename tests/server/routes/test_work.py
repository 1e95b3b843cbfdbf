"""External workers over HTTP: claims, reports, results, scopes, dead letters and snapshots."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from agent.core.redaction import everywhere
from agent.server import work_values
from agent.steps.attempt.context import LOG_ENDS
from agent.tasks.commit import due_tasks
from tests.support.server import Running, wait_for

PLAIN = """
name: plain
inputs: {text: {type: string, default: hello}}
steps:
  review:
    worker: {queue: QUEUE, with: {text: "{{ inputs.text }}"}}
    retry: {max_attempts: 2, delay: 0s}
"""
TYPED = """
name: typed
steps:
  review:
    worker: {queue: typed}
    output: {type: object, required: [verdict], properties: {verdict: {type: string}}}
"""
EFFECT = """
name: effect
steps:
  pay:
    worker: {queue: effect, with: {amount: 5}, effect: once}
  remember:
    depends_on: [pay]
    worker: {queue: effect}
    set_state: {last: "{{ output.n }}"}
"""
WORKER = "host:1"
NOTHING_OVER: dict[str, Any] = {"expired": [], "kept": [], "has_more": False}


@pytest.fixture(scope="module", autouse=True)
def workflows(running: Running) -> None:
    """Put workflows on record, one queue for each test that counts."""
    for name in ("one", "two", "ask", "dead", "long", "paused", "gate", "expire"):
        text = PLAIN.replace("QUEUE", name).replace("name: plain", f"name: plain-{name}")
        if name == "gate":
            text += "    approval: {message: really?}\n"
        running.add_workflow(text)
    for text in (TYPED, EFFECT):
        running.add_workflow(text)


@pytest.fixture
def worker(running: Running) -> Iterator[httpx.Client]:
    """Return a client of a worker for all queues."""
    with running.client(running.token_with("work:*")) as client:
        yield client


def start(client: httpx.Client, workflow: str, **given: Any) -> str:
    """Start a task."""
    created = client.post(f"/api/v1/workflows/{workflow}/tasks", json={"input": given})
    assert created.status_code == 201, created.text
    return str(created.json()["id"])


def claim(client: httpx.Client, queue: str, **options: Any) -> dict[str, Any]:
    """Claim one piece of work, and wait for it."""
    body = {"queues": [queue], "worker": WORKER, "wait": 30, **options}
    answered = client.post("/api/v1/work/claim", json=body)
    assert answered.status_code == 200, answered.text
    (work,) = answered.json()["work"]
    return dict(work)


def call(client: httpx.Client, work: dict[str, Any], verb: str, **body: Any) -> httpx.Response:
    """Make a call on a lease."""
    return client.post(f"/api/v1/work/{work['lease_id']}/{verb}", json=body)


def test_a_worker_does_the_work(
    running: Running, client: httpx.Client, worker: httpx.Client
) -> None:
    """It claims, begins, reports and completes; the task succeeds with its output."""
    task = start(client, "plain-one", text="hi")
    work = claim(worker, "one")
    assert (work["input"], work["task"], work["state"]) == ({"text": "hi"}, task, "leased")
    assert call(worker, work, "running").json()["action"] == "continue"
    assert call(worker, work, "heartbeat").json()["action"] == "continue"
    assert call(worker, work, "checkpoint", value={"at": 1}).status_code == 200
    assert call(worker, work, "log", text="half way").status_code == 200
    kept = call(worker, work, "artifact", name="rows", value=[1, 2]).json()
    assert client.get(f"/api/v1/artifacts/{kept['hash']}").json() == [1, 2]
    (queue,) = [
        found
        for found in client.get("/api/v1/work/queues").json()["queues"]
        if found["queue"] == "one"
    ]
    assert (queue["running"], queue["claimants"]) == (1, [WORKER])
    done = call(
        worker, work, "complete", output={"ok": True}, snapshot={"value": 7, "label": "end"}
    )
    assert done.status_code == 200 and done.json()["step"] == "succeeded"
    document = running.wait_for_task(client, task, "succeeded")
    assert document["output"] == {"review": {"ok": True}}
    logs = client.get(f"/api/v1/tasks/{task}/steps/review/logs").json()
    assert "half way" in str(logs)
    latest = client.get(f"/api/v1/tasks/{task}/snapshots/latest").json()
    assert (latest["value"], latest["label"], latest["by"]) == (7, "end", f"worker:{WORKER}")
    again = call(
        worker, work, "complete", output={"ok": True}, snapshot={"value": 7, "label": "end"}
    )
    assert again.json() == done.json() and done.json()["snapshot"] == latest["id"]
    refused = call(worker, work, "heartbeat")
    assert refused.status_code == 410 and refused.json()["reason"] == "ended"


def test_names_that_a_worker_gives_hold_no_secret(
    client: httpx.Client, worker: httpx.Client
) -> None:
    """Its own name, those of artifacts and snapshots, choices and codes: secrets are taken out of each."""
    secret = "hunter2-as-a-name"
    everywhere.hide(secret, "env:NAME")
    task = start(client, "plain-one")
    work = claim(worker, "one", worker=f"host {secret}")
    assert call(worker, work, "artifact", name=secret, value=1).json()["name"] == "[redacted]"
    assert call(worker, work, "snapshot", value=1, label=secret).status_code == 200
    client.post(f"/api/v1/tasks/{task}/snapshots", json={"value": secret, "label": secret})
    asked = call(worker, work, "ask", question="Which?", choices=["a", secret]).json()
    texts = [
        client.get(path).text
        for path in (
            f"/api/v1/approvals/{asked['approval']}",
            f"/api/v1/tasks/{task}",
            f"/api/v1/tasks/{task}/snapshots",
            f"/api/v1/events?task={task}&limit=1000",
            "/api/v1/work/queues",
        )
    ]
    assert all("[redacted]" in text for text in texts[:1] + texts[2:4])
    assert not any(secret in text for text in texts)
    client.post(f"/api/v1/tasks/{task}/cancel")


def test_what_one_piece_of_work_may_add_is_bounded(
    running: Running, client: httpx.Client, worker: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Artifacts by number, over all leases of the work; its log by size, as that of other steps."""
    monkeypatch.setattr(work_values, "MAX_ARTIFACTS", 3)
    services = running.worker.services
    monkeypatch.setattr(services, "limits", replace(services.limits, log_bytes=20))
    task = start(client, "plain-one")
    work = claim(worker, "one")
    codes = [call(worker, work, "artifact", name="a", value=n).status_code for n in range(2)]
    call(worker, work, "release", reason="again")
    work = claim(worker, "one")
    codes += [call(worker, work, "artifact", name="a", value=n).status_code for n in range(2)]
    assert codes == [200, 200, 200, 409]
    for _ in range(5):
        assert call(worker, work, "log", text="0123456789ab").status_code == 200
    written = client.get(f"/api/v1/tasks/{task}/steps/review/logs").json()["logs"]
    assert [each["text"] for each in written] == ["0123456789ab", f"01234567{LOG_ENDS}"]
    client.post(f"/api/v1/tasks/{task}/cancel")


def test_a_result_counts_whose_next_claim_is_refused(
    running: Running, client: httpx.Client
) -> None:
    """The answer says that the claim must be repeated, and not that there is no work."""
    task = start(client, "plain-one")
    following = {"queues": ["two"], "worker": WORKER, "client_token": "next"}
    with running.client(running.token_with("work:one")) as worker:
        done = call(worker, claim(worker, "one"), "complete", claim=following)
        assert (done.status_code, done.json()["work"]) == (200, None)
        assert worker.post("/api/v1/work/claim", json=following).status_code == 403
        following["queues"] = ["one"]
        assert worker.post("/api/v1/work/claim", json=following).json() == {"work": []}
    running.wait_for_task(client, task, "succeeded")


def test_a_claim_waits_for_work(client: httpx.Client, worker: httpx.Client) -> None:
    """A long poll returns as soon as there is work, and with nothing when its time is over."""
    body = {"queues": ["long"], "worker": WORKER, "wait": 0.05}
    assert worker.post("/api/v1/work/claim", json=body).json() == {"work": []}
    got: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: got.append(claim(worker, "long")))
    waiting.start()
    task = start(client, "plain-long")
    waiting.join(30)
    assert [work["task"] for work in got] == [task]
    assert call(worker, got[0], "complete").status_code == 200


def test_a_token_sees_its_own_queues(running: Running, client: httpx.Client) -> None:
    """A queue without the scope is refused, and a lease of it is one that does not exist."""
    start(client, "plain-two")
    work = claim(client, "two")
    with running.client(running.token_with("work:other")) as other:
        body = {"queues": ["two"], "worker": WORKER}
        assert other.post("/api/v1/work/claim", json=body).status_code == 403
        for verb in ("running", "heartbeat", "complete"):
            lost = other.post(f"/api/v1/work/{work['lease_id']}/{verb}", json=None)
            assert (lost.status_code, lost.json()["reason"]) == (410, "unknown")
        assert other.get("/api/v1/work/queues").status_code == 403
        assert other.get("/api/v1/tasks").status_code == 403
    with running.client(running.token_with("operate")) as operator:
        assert operator.post("/api/v1/work/claim", json=body).status_code == 403
    nonsense = client.post("/api/v1/work/nonsense/running")
    assert (nonsense.status_code, nonsense.json()["reason"]) == (410, "unknown")
    assert call(client, work, "complete").status_code == 200


def test_an_output_must_match_the_schema(
    running: Running, client: httpx.Client, worker: httpx.Client
) -> None:
    """A result that does not is refused with the reason, and the lease stays."""
    task = start(client, "typed")
    work = claim(worker, "typed")
    assert work["output_schema"]["required"] == ["verdict"]
    refused = call(worker, work, "complete", output={"verdict": 3})
    assert refused.status_code == 422 and "verdict" in refused.json()["detail"]
    assert call(worker, work, "complete", output={"verdict": "fine"}).status_code == 200
    running.wait_for_task(client, task, "succeeded")


def test_effects_and_state(running: Running, client: httpx.Client, worker: httpx.Client) -> None:
    """An effect has its call in the ledger; `set_state` is rendered from the worker's output."""
    task = start(client, "effect")
    work = claim(worker, "effect", start=True)
    assert work["state"] == "running" and work["idempotency_key"]
    assert call(worker, work, "complete", output="paid").status_code == 200
    work = claim(worker, "effect")
    assert call(worker, work, "complete", output={"n": 3}).status_code == 200
    document = running.wait_for_task(client, task, "succeeded")
    assert document["output"] == {"remember": {"n": 3}}
    assert client.get("/api/v1/state/workflow:effect/last").json()["value"] == 3
    (first,) = client.get(f"/api/v1/tasks/{task}/steps/pay/calls").json()["calls"]
    assert (first["action"], first["status"]) == ("worker.effect", "succeeded")


def test_questions_park_the_work(
    running: Running, client: httpx.Client, worker: httpx.Client
) -> None:
    """A person's answer, also by `resume`, brings the work back; the next claim has the answer."""
    task = start(client, "plain-ask")
    work = claim(worker, "ask")
    asked = call(worker, work, "ask", question="which?", choices=["a", "b"], checkpoint={"n": 1})
    approval = asked.json()["approval"]
    (question,) = client.get("/api/v1/approvals", params={"task": task}).json()["approvals"]
    assert (question["id"], question["message"]) == (approval, "which?")
    answered = client.post(f"/api/v1/approvals/{approval}/answer", json={"value": "b"})
    assert answered.status_code == 200, answered.text
    work = claim(worker, "ask")
    assert work["answer"]["value"] == "b" and work["checkpoint"] == {"n": 1}
    assert work["attempt"] == 1
    assert call(worker, work, "block", reason="no access").json()["approval"] is not None
    resumed = client.post(f"/api/v1/work/items/{work['id']}/resume", json={"value": "try again"})
    assert resumed.status_code == 200, resumed.text
    assert client.post(f"/api/v1/work/items/{work['id']}/resume").status_code == 409
    work = claim(worker, "ask")
    assert (work["answer"]["status"], work["answer"]["value"]) == ("answered", "try again")
    assert client.get("/api/v1/approvals", params={"task": task}).json()["approvals"] == []
    call(worker, work, "complete")
    running.wait_for_task(client, task, "succeeded")


def test_dead_letters_are_listed_and_requeued(
    running: Running, client: httpx.Client, worker: httpx.Client
) -> None:
    """A step without attempts left is a dead letter; requeued, its task is retried once."""
    task = start(client, "plain-dead")
    for _ in range(2):
        assert call(worker, claim(worker, "dead"), "fail", message="no", code="broken").is_success
    running.wait_for_task(client, task, "failed")
    (dead,) = client.get("/api/v1/work/dead", params={"queue": "dead"}).json()["dead"]
    assert (dead["task"], dead["attempts"], dead["error"]["code"]) == (task, 2, "broken")
    for filters, count in (({"code": "broken"}, 1), ({"code": "other"}, 0), ({"queue": "x"}, 0)):
        assert len(client.get("/api/v1/work/dead", params=filters).json()["dead"]) == count
    path = f"/api/v1/work/dead/{dead['id']}/requeue"
    requeued = client.post(path, json={"not_before": "1h", "reason": "mended"})
    assert requeued.status_code == 201, requeued.text
    again = requeued.json()["task_id"]
    assert client.post(path).json()["task_id"] == again
    assert client.get("/api/v1/work/dead", params={"queue": "dead"}).json()["dead"] == []
    (step,) = client.get(f"/api/v1/tasks/{again}").json()["steps"]
    assert (step["status"], step["attempt"]) == ("pending", 1) and step["wake_at"] is not None
    client.post(f"/api/v1/tasks/{again}/cancel")


def test_a_paused_task_tells_its_worker(client: httpx.Client, worker: httpx.Client) -> None:
    """Heartbeats say pause, and cancel once the task is canceled."""
    task = start(client, "plain-paused")
    work = claim(worker, "paused", start=True)
    client.post(f"/api/v1/tasks/{task}/pause")
    assert call(worker, work, "heartbeat").json()["action"] == "pause"
    client.post(f"/api/v1/tasks/{task}/resume")
    known = client.post(f"/api/v1/tasks/{task}/snapshots", json={"value": 1}).json()["id"]
    newer = client.post(f"/api/v1/tasks/{task}/snapshots", json={"value": 2}).json()
    assert newer["parent"] == known
    state = call(worker, work, "heartbeat", snapshot=known).json()
    assert (state["action"], state["snapshot"]) == ("changed", newer["id"])
    assert call(worker, work, "heartbeat", snapshot=newer["id"]).json()["action"] == "continue"
    listed = client.get(f"/api/v1/tasks/{task}/snapshots", params={"limit": 1}).json()
    assert [found["value"] for found in listed["snapshots"]] == [1]
    following = {"cursor": listed["next"]}
    rest = client.get(f"/api/v1/tasks/{task}/snapshots", params=following).json()["snapshots"]
    assert [found["value"] for found in rest] == [2]
    client.post(f"/api/v1/tasks/{task}/cancel")
    assert call(worker, work, "heartbeat").json()["action"] == "cancel"
    refused = call(worker, work, "complete")
    assert (refused.status_code, refused.json()["reason"]) == (410, "withdrawn")
    ended = client.post(f"/api/v1/tasks/{task}/snapshots", json={"value": 3})
    assert ended.status_code == 409


def test_a_worker_reads_the_context_of_its_task(
    running: Running, client: httpx.Client, worker: httpx.Client
) -> None:
    """Its token allows nothing of the task but that, and only while it has the lease."""
    task = start(client, "plain-two")
    work = claim(worker, "two")
    address = f"/api/v1/work/{work['lease_id']}/snapshots"
    assert worker.get(f"{address}/latest").status_code == 404
    assert call(worker, work, "heartbeat", snapshot=None).json()["action"] == "continue"
    theirs = f"/api/v1/tasks/{task}/snapshots"
    first, second = (client.post(theirs, json={"value": n, "label": "n"}).json() for n in (1, 2))
    assert worker.get(theirs).status_code == 403
    assert call(worker, work, "heartbeat").json()["action"] == "continue"
    for known in (None, first["id"]):
        told = call(worker, work, "heartbeat", snapshot=known).json()
        assert (told["action"], told["snapshot"]) == ("changed", second["id"])
    assert call(worker, work, "heartbeat", snapshot=second["id"]).json()["action"] == "continue"
    assert worker.get(address).json() == {"snapshots": [first, second], "next": None}
    page = worker.get(address, params={"limit": 1}).json()
    assert (page["snapshots"], page["next"]) == ([first], first["id"])
    behind = worker.get(address, params={"cursor": first["id"]}).json()
    assert behind["snapshots"] == [second]
    assert worker.get(f"{address}/latest", params={"label": "n"}).json() == second
    assert worker.get(f"{address}/latest", params={"label": "other"}).status_code == 404
    with running.client(running.token_with("work:one")) as other:
        assert other.get(address).json()["reason"] == "unknown"
    call(worker, work, "release", reason="enough")
    for path in (address, f"{address}/latest"):
        refused = worker.get(path)
        assert (refused.status_code, refused.json()["reason"]) == (410, "released")
    again = claim(worker, "two")
    client.post(f"/api/v1/tasks/{task}/cancel")
    withdrawn = worker.get(f"/api/v1/work/{again['lease_id']}/snapshots")
    assert (withdrawn.status_code, withdrawn.json()["reason"]) == (410, "withdrawn")


def test_a_waiting_step_names_the_worker_that_has_it(
    client: httpx.Client, worker: httpx.Client
) -> None:
    """In the task, in the step and in lists; nothing is left of it once the work is given back."""
    task = start(client, "plain-two")

    def shown() -> list[tuple[Any, Any]]:
        document = client.get(f"/api/v1/tasks/{task}").json()
        step = client.get(f"/api/v1/tasks/{task}/steps/review").json()
        listed = client.get("/api/v1/tasks", params={"id": task}).json()["tasks"][0]
        waits = [*document["waiting_on"], step["waiting_on"], *listed["waiting_for"]]
        return [(wait["state"], wait["worker"]) for wait in waits]

    wait_for(lambda: client.get(f"/api/v1/tasks/{task}").json()["waiting_on"])
    assert shown() == [(None, None)] * 3
    work = claim(worker, "two")
    assert shown() == [("leased", WORKER)] * 3
    call(worker, work, "running")
    assert shown() == [("running", WORKER)] * 3
    call(worker, work, "ask", question="Go on?")
    asked = client.get(f"/api/v1/tasks/{task}").json()["waiting_on"][0]
    assert "worker" not in asked and asked["message"] == "Go on?"


def test_a_repeated_snapshot_is_appended_once(client: httpx.Client, worker: httpx.Client) -> None:
    """A token names the call: a repetition gets the same id, of its own caller and value only."""
    task = start(client, "plain-two")
    work = claim(worker, "two")
    first = call(worker, work, "snapshot", value=1, client_token="a").json()
    assert call(worker, work, "snapshot", value=1, client_token="a").json() == first
    reused = call(worker, work, "snapshot", value=2, client_token="a")
    assert (reused.status_code, "client_token" in reused.json()["detail"]) == (409, True)
    address, body = f"/api/v1/tasks/{task}/snapshots", {"value": 3, "client_token": "a"}
    theirs = client.post(address, json=body)
    assert (theirs.status_code, theirs.json()["parent"]) == (201, first["snapshot"])
    call(worker, work, "complete")
    # The answer may have been lost on the way while the task went on to its end.
    wait_for(lambda: client.get(f"/api/v1/tasks/{task}").json()["ended_at"])
    assert client.post(address, json=body).json() == theirs.json()
    values = [each["value"] for each in client.get(address).json()["snapshots"]]
    assert values == [1, 3]


def test_a_checkpoint_is_a_value_whatever_it_looks_like(
    client: httpx.Client, worker: httpx.Client
) -> None:
    """One that looks like a reference to a large value is returned as it is, and reads nothing."""
    task = start(client, "plain-two")
    work = claim(worker, "two", start=True)
    kept = call(worker, work, "artifact", name="other", value=["of another"]).json()["hash"]
    for value in ({"$artifact": kept}, {"$artifact": 5}):
        assert call(worker, work, "checkpoint", value=value).status_code == 200
        call(worker, work, "ask", question="which?")
        client.post(f"/api/v1/work/items/{work['id']}/resume", json={})
        work = claim(worker, "two", start=True)
        assert work["checkpoint"] == value
    client.post(f"/api/v1/tasks/{task}/cancel")


def test_a_gate_asks_before_the_work_is_offered(
    running: Running, client: httpx.Client, worker: httpx.Client
) -> None:
    """With `approval:` on the step, workers see the work after the yes."""
    task = start(client, "plain-gate")
    (question,) = wait_for(
        lambda: client.get("/api/v1/approvals", params={"task": task}).json()["approvals"]
    )
    body = {"queues": ["gate"], "worker": WORKER}
    assert worker.post("/api/v1/work/claim", json=body).json() == {"work": []}
    client.post(f"/api/v1/approvals/{question['id']}/approve", json={})
    work = claim(worker, "gate")
    assert work["checkpoint"] is None, "what the engine saved for the question is its own"
    call(worker, work, "complete")
    running.wait_for_task(client, task, "succeeded")


def test_a_repeated_claim_is_the_same_lease(client: httpx.Client, worker: httpx.Client) -> None:
    """A client that lost the answer asks again with its token."""
    start(client, "plain-one")
    first = claim(worker, "one", client_token="abc")
    assert claim(worker, "one", client_token="abc")["lease_id"] == first["lease_id"]
    assert call(worker, first, "release", reason="done testing").json()["step"] == "waiting"
    call(worker, claim(worker, "one"), "complete")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"queues": [], "worker": "w"},
        {"queues": ["Bad Name"], "worker": "w"},
        {"queues": ["q"], "worker": "nul\0"},
        {"queues": ["q"], "worker": "w", "wait": 31},
        {"queues": ["q"], "worker": "w", "limit": 0},
        {"queues": ["q"], "worker": "w", "more": 1},
    ],
)
def test_bad_claims_are_refused(client: httpx.Client, body: dict[str, Any]) -> None:
    """Each problem is named."""
    refused = client.post("/api/v1/work/claim", json=body)
    assert refused.status_code == 422 and refused.json()["errors"]


def test_leases_are_checked_on_request(
    running: Running,
    client: httpx.Client,
    worker: httpx.Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that are over expire, even if the engine's own check comes later; the others are kept."""
    assert client.post("/api/v1/work/expire").json() == NOTHING_OVER

    def check_later(_tx: object, locked: Any, step: Any, _answered: object) -> None:
        step.wake_at = locked.now + 3600 * 10**6

    # From now on the engine's own check does nothing.
    monkeypatch.setattr(due_tasks, "work_expiry", SimpleNamespace(check=check_later))
    task = start(client, "plain-expire")
    work = claim(worker, "expire", lease=1)
    client.post(f"/api/v1/tasks/{task}/pause")

    def over() -> Any:
        checked = client.post("/api/v1/work/expire").json()
        return checked if checked != NOTHING_OVER else None

    about = {"id": work["id"], "task": task, "queue": "expire", "step": "review"}
    about |= {"parallel_index": None, "worker": WORKER, "attempt": 1}
    kept = {**about, "reason": "its task is paused", "expires_at": None}
    assert wait_for(over) == {**NOTHING_OVER, "kept": [kept]}
    assert call(worker, work, "heartbeat").json()["action"] == "pause"
    client.post(f"/api/v1/tasks/{task}/resume")
    assert wait_for(over) == {**NOTHING_OVER, "expired": [about]}
    assert client.post("/api/v1/work/expire").json() == NOTHING_OVER
    assert call(worker, work, "complete").json()["reason"] == "expired"
    (event,) = [
        event
        for event in client.get("/api/v1/events", params={"task": task, "limit": 100}).json()[
            "events"
        ]
        if event["type"] == "step.lease_expired"
    ]
    assert event["data"]["worker"] == WORKER
    for scopes, status in ((("work:*", "read"), 403), (("operate",), 200)):
        with running.client(running.token_with(*scopes)) as other:
            assert other.post("/api/v1/work/expire").status_code == status
    client.post(f"/api/v1/tasks/{task}/cancel")


def test_a_process_without_a_server_checks_no_lease(running: Running, client: httpx.Client) -> None:
    """It answers no workers: the request is refused, and says who can check."""
    running.worker.answering.close()
    try:
        refused = client.post("/api/v1/work/expire")
    finally:
        running.worker.answering.open()
    assert refused.status_code == 409 and "--server" in refused.json()["detail"]
