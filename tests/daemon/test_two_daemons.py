"""Two agents on one PostgreSQL: a lease belongs to the database, and not to the agent that gave it out."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.cli import PATIENCE_SECONDS, Cli, api_address

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

FLOW = """\
name: shared
steps:
  work:
    worker: {queue: shared, with: {n: 1}, effect: once}
    output: {type: object, required: [done]}
output: "{{ steps.work.output }}"
"""


class Agent:
    """The API of one agent."""

    def __init__(self, cli: Cli, client: httpx.Client) -> None:
        self.cli = cli
        self._client = client

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self._client.post(f"/api/v1/{path}", json=body)

    def start(self) -> str:
        return str(self.post("workflows/shared/tasks", input={}).json()["id"])

    def claim(self, **options: Any) -> list[dict[str, Any]]:
        claimed = self.post("work/claim", queues=["shared"], worker="host:1", **options)
        assert claimed.status_code == 200, claimed.text
        work: list[dict[str, Any]] = claimed.json()["work"]
        return work

    def status(self, task_id: str) -> str:
        return str(self._client.get(f"/api/v1/tasks/{task_id}").json()["status"])


@pytest.fixture
def both(postgres_url: str, tmp_path: Path) -> Iterator[tuple[Agent, Agent]]:
    """Return two running agents with homes of their own and one database."""
    with ExitStack() as stack:
        found = []
        for name in ("one", "two"):
            home = tmp_path / name
            home.mkdir()
            cli = Cli(home, AGENT_DATABASE__URL=postgres_url, AGENT_SERVER__PORT="0")
            cli.write("workflows/shared.yaml", FLOW)
            url = api_address(stack.enter_context(cli.daemon()))
            token = (home / "data" / "token").read_text().strip()
            headers = {"Authorization": f"Bearer {token}"}
            client = httpx.Client(
                base_url=url, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False
            )
            found.append(Agent(cli, stack.enter_context(client)))
        yield found[0], found[1]


def test_a_lease_of_one_agent_counts_at_the_other(both: tuple[Agent, Agent]) -> None:
    """Work is claimed at one agent, and begun, completed and cancelled at the other; one may end meanwhile."""
    first, second = both
    _complete_elsewhere(first, second)
    _cancel_elsewhere(first, second)
    _outlive_the_agent(first, second)


def _complete_elsewhere(first: Agent, second: Agent) -> None:
    task = first.start()
    # Work that one agent queues wakes a claim at the other.
    (work,) = second.claim(wait=30, client_token="c-1")
    assert work["task"] == task
    assert [each["lease_id"] for each in first.claim(client_token="c-1")] == [work["lease_id"]]
    assert first.claim() == []
    held = f"work/{work['lease_id']}"
    for call in ("running", "heartbeat"):
        assert first.post(f"{held}/{call}").json()["action"] == "continue"
    assert first.post(f"{held}/checkpoint", value={"half": True}).status_code == 200
    assert second.post(f"{held}/heartbeat").json()["action"] == "continue"
    # An agent that did not make the claim reads the schema of the output.
    assert first.post(f"{held}/complete", output=1).status_code == 422
    assert first.post(f"{held}/complete", output={"done": 1}).json()["step"] == "succeeded"
    second.cli.wait_for(lambda: second.status(task) == "succeeded")
    assert second.post(f"{held}/heartbeat").status_code == 410


def _cancel_elsewhere(first: Agent, second: Agent) -> None:
    task = second.start()
    (work,) = first.claim(wait=30, start=True)
    held = f"work/{work['lease_id']}"
    assert second.post(f"tasks/{task}/cancel").status_code == 200
    assert first.post(f"{held}/heartbeat").json()["action"] == "cancel"
    # What happened is known, although the result is not wanted any more.
    assert second.post(f"{held}/complete", output={"done": 2}).json()["is_late"]
    assert first.status(task) == "canceled"


def _outlive_the_agent(first: Agent, second: Agent) -> None:
    task = second.start()
    (work,) = second.claim(wait=30)
    second.cli("stop")
    held = f"work/{work['lease_id']}"
    assert first.post(f"{held}/running").json()["action"] == "continue"
    assert first.post(f"{held}/complete", output={"done": 3}).status_code == 200
    first.cli.wait_for(lambda: first.status(task) == "succeeded")
