"""What is shown runs: every block of the reference that can, and every example."""

import json
import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from agent.channels.messages.messenger import ChannelMessenger
from agent.config.channels import NotifySettings
from agent.config.settings import Settings
from agent.store.db.database import Database
from agent.store.engine import workflow_versions
from agent.workflows import loader
from agent.workflows.compile.compiler import compile_text
from agent.workflows.compile.inputs import check_inputs
from agent.workflows.directory import Directory
from tests.support.documented import ROOT, Documented, documented_workflows
from tests.support.engine import Engine, find_violations

EXAMPLES = ROOT / "examples"


@pytest.fixture
def own(sqlite_database: Database, tmp_path: Path) -> Iterator[Engine]:
    """Return a worker that runs in a directory of its own; loopback is allowed there."""
    before = Path.cwd()
    (tmp_path / "here").mkdir()
    os.chdir(tmp_path / "here")
    engine = Engine(sqlite_database, allow_private=("127.0.0.1",))
    yield engine
    os.chdir(before)
    engine.stop()
    engine.close()
    assert find_violations(sqlite_database) == []


@pytest.mark.parametrize(
    "documented",
    [
        each
        for page in ("workflows.md", "state.md")
        for each in documented_workflows(page)
        if each.can_run
    ],
    ids=lambda each: f"line {each.line}",
)
def test_every_documented_workflow_runs(own: Engine, documented: Documented) -> None:
    """Every block of the reference that is not marked otherwise ends."""
    graph = compile_text(documented.text, f"line {documented.line}")
    document = own.run(graph, given=check_inputs(graph, {}))
    assert document["status"] == "succeeded", json.dumps(document, indent=1)


def test_the_documented_functions_work_as_described(own: Engine, tmp_path: Path) -> None:
    """The module of the reference and its workflow run unchanged."""
    text = (ROOT / "docs" / "workflows.md").read_text(encoding="utf-8")
    module = text.split("```python\n")[1].split("```\n")[0]
    (workflow,) = [each for each in documented_workflows() if "ledger:pay" in each.text]
    (tmp_path / "ledger.py").write_text(module, encoding="utf-8")
    book = tmp_path / "payments.txt"
    graph = compile_text(workflow.text, "functions.yaml")
    given = check_inputs(graph, {"book": str(book)})
    done = own.run(graph, given=given, path=str(tmp_path / "functions.yaml"))
    assert (done["status"], done["output"]) == ("succeeded", 42), done["error"]
    assert [line.split()[1] for line in book.read_text().splitlines()] == ["42"]
    given = check_inputs(graph, {"book": str(book), "lines": []})
    refused = own.run(graph, "failed", given=given, path=str(tmp_path / "functions.yaml"))
    assert refused["error"]["message"] == "there is nothing to pay"
    assert [step["attempt"] for step in refused["steps"]] == [1, 1]


def run_example(engine: Engine, name: str, **given: Any) -> dict[str, Any]:
    """Run an example with inputs until it ends or waits."""
    loaded = loader.load(EXAMPLES / f"{name}.yaml")
    inputs = check_inputs(loaded.graph, given)
    return engine.run(loaded.graph, given=inputs, path=str(loaded.path))


@pytest.mark.parametrize("name", ["hello", "diamond", "disk-report", "backup"])
def test_examples_run_without_anything(own: Engine, name: str) -> None:
    """These need no input, no key and no network."""
    assert run_example(own, name)["status"] == "succeeded"


def test_the_example_of_children_runs(own: Engine) -> None:
    """Its children are found on record by their names, and its note is sent to the operator."""
    notify = NotifySettings(operator=["terminal:ada"])
    own.worker.services.messenger = ChannelMessenger(Settings(notify=notify), own.database)
    directory = Directory(EXAMPLES)
    directory.scan()
    with own.database.connect("writer") as connection, connection.transaction():
        for name, found in directory.workflows.items():
            graph = found.graph
            path = str(found.path.absolute())
            workflow_versions.register(
                connection, name, graph.hash, graph.text, found.text, path, 1
            )
    document = run_example(own, "morning")
    assert document["status"] == "succeeded", json.dumps(document, indent=1)
    assert len(document["children"]) >= 2
    ((text,),) = own.rows("SELECT text FROM terminal_messages WHERE recipient = 'ada'")
    assert "(succeeded, succeeded)" in text


def test_the_example_of_signals_runs(own: Engine) -> None:
    """It waits for the signature, and its output names the signer."""
    loaded = loader.load(EXAMPLES / "sign-off.yaml")
    task_id = own.submit(loaded.graph, given=check_inputs(loaded.graph, {}), path=str(loaded.path))
    own.wait_step(task_id, "signed", "waiting")
    own.operator.signal(task_id, "signed", {"by": "Ada"})
    assert own.wait(task_id, "succeeded", "failed")["output"]["signed_by"] == "Ada"


def test_the_example_that_moves_files_runs(own: Engine, tmp_path: Path) -> None:
    """Photos are moved only when told to; nothing is lost."""
    folder = tmp_path / "camera"
    folder.mkdir()
    for day in (1, 2, 3):
        (folder / f"IMG_2026030{day}_120000.jpg").write_bytes(b"photo %d" % day)
    assert run_example(own, "tidy-photos", folder=str(folder))["status"] == "succeeded"
    assert len(list(folder.glob("*.jpg"))) == 3
    assert run_example(own, "tidy-photos", folder=str(folder), move=True)["status"] == "succeeded"
    assert list(folder.glob("*.jpg")) == []
    assert len(list(folder.rglob("*.jpg"))) == 3


def test_the_example_that_watches_a_page_runs(own: Engine, tmp_path: Path) -> None:
    """It speaks to a server on loopback, and notices a change."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("one")
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/"
        first = run_example(own, "website-watch", url=url)
        (site / "index.html").write_text("two")
        second = run_example(own, "website-watch", url=url)
        server.shutdown()
        thread.join()
    assert (first["status"], second["status"]) == ("succeeded", "succeeded")
    assert first["output"] != second["output"]
    shutil.rmtree(site)
