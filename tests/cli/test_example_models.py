"""The examples that ask models, as people run them: on `echo`, which needs no key."""

import shutil

import pytest

from tests.support.cli import ROOT, Cli


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("first-example", [], "Begin with hello.yaml"),
        ("read-letter", [], "Ada Lovelace"),
        ("look-into", ["-i", "model=echo"], "[echo] How full are the disks"),
    ],
)
def test_an_example_runs(cli: Cli, name: str, given: list[str], said: str) -> None:
    """It succeeds, and says what it is to say."""
    shutil.copytree(ROOT / "examples", cli.directory / "workflows")
    cli("init")
    done = cli("run", name, *given, "--wait", "--json").json
    assert done["status"] == "succeeded", done["error"]
    assert said in str(done["output"])
    assert done["usage"]["turns"] >= 1
