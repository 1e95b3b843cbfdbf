"""Why new steps wait after a crash: on the page of health, and on the page of a task that waits."""

import re
import shutil
from pathlib import Path

from agent.store.db.database import Database
from tests.support.browser import sign_in
from tests.support.engine import Hand, graph, step
from tests.support.interventions import lose
from tests.support.sample_workflows import QUICK
from tests.support.server import Running, wait_for
from tests.support.step_functions import Gate


def test_pages_say_what_holds_new_steps_back(sqlite_template: Path, tmp_path: Path) -> None:
    """The lost step is a link, and the latest end of its isolation a time."""
    shutil.copyfile(sqlite_template, tmp_path / "agent.db")
    database = Database(f"sqlite:///{tmp_path}/agent.db")
    gate = Gate()
    victim = Hand(database)
    held = step("held", "gated", given={"gate": gate.name})
    lost = victim.start(graph(held, name="poisonous"))
    lose(victim)
    victim.close()
    with Running(database, tmp_path) as running, running.client("") as visitor:
        running.add_workflow(QUICK)
        visitor.cookies.set(running.server.cookie, sign_in(running))
        wait_for(lambda: gate.entered == 1)
        with running.client() as client:
            waiting = client.post("/api/v1/workflows/quick/tasks").json()["id"]
            status = client.get("/api/v1/status").json()
            assert (status["isolated"]["task"], status["isolated"]["step"]) == (lost, "held")
            link = f'<a href="/tasks/{lost}"><code>{lost[-8:]}</code></a> runs alone after a crash'
            health = visitor.get("/health").text
            assert f"Step held of task {link}, until <time" in health
            assert "other steps start then" in health
            page = visitor.get(f"/tasks/{waiting}").text
            assert re.search(rf"</b> waits: step held of task {link}, until <time", page)
            gate.open()
            running.wait_for_task(client, waiting, "succeeded")
        assert "runs alone" not in visitor.get("/health").text
        assert "runs alone" not in visitor.get(f"/tasks/{waiting}").text
