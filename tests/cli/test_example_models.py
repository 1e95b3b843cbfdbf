"""The examples that ask models, as people run them: on `echo`, which needs no key."""

import shutil

import pytest

from tests.support.cli import ROOT, Cli


@pytest.mark.parametrize(
    ("name", "inputs", "expected"),
    [
        ("first-example", [], "Begin with hello.yaml"),
        ("read-letter", [], "Ada Lovelace"),
        ("look-into", ["-i", "model=echo"], "[echo] How full are the disks"),
    ],
)
def test_an_example_runs(cli: Cli, name: str, inputs: list[str], expected: str) -> None:
    """It succeeds, with the expected output."""
    shutil.copytree(ROOT / "examples", cli.directory / "workflows")
    cli("init")
    done = cli("run", name, *inputs, "--wait", "--json").json
    assert done["status"] == "succeeded", done["error"]
    assert expected in str(done["output"])
    assert done["usage"]["turns"] >= 1
