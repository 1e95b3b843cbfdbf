"""Two servers in one process: each shows its own database and directory."""

from contextlib import ExitStack
from pathlib import Path

import httpx

from agent.store.db.database import Database
from tests.support.browser import sign_in
from tests.support.server import Running

ONE = "name: same\nsteps: {%s: {wait: 1h}}\n"


def test_pages_show_their_own_database(sqlite_template: Path, tmp_path: Path) -> None:
    """One name and version with different steps in each: no page shows a step of the other."""
    with ExitStack() as stack:
        visitors: dict[str, httpx.Client] = {}
        for step in ("alpha", "omega"):
            home = tmp_path / step
            (home / "workflows").mkdir(parents=True)
            (home / "workflows" / f"bad-{step}.yaml").write_text(f"name: broken-{step}\nsteps: 1\n")
            (home / "agent.db").write_bytes(sqlite_template.read_bytes())
            (home / "agent.db").chmod(0o600)
            database = Database(f"sqlite:///{home}/agent.db")
            running = stack.enter_context(Running(database, home))
            running.add_workflow(ONE % step)
            visitor = visitors[step] = stack.enter_context(running.client(""))
            visitor.cookies.set(running.server.cookie, sign_in(running))
        for step, other in (("alpha", "omega"), ("omega", "alpha")):
            visitor = visitors[step]
            workflow = visitor.get("/workflows/same").text
            assert f">{step}<" in workflow
            assert other not in workflow
            files = visitor.get("/workflows").text
            assert f"bad-{step}.yaml" in files
            assert f"bad-{other}.yaml" not in files
