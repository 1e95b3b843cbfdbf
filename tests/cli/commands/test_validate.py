"""`agent validate`: files, and directories of files."""

import time
from pathlib import Path

from tests.support.cli import Cli

PARENT = """\
name: parent
steps:
  call: {workflow: {name: child}}
"""
CHILD = "name: child\nsteps: {wait: {wait: 1s}}\n"
BROKEN = "name: child\nsteps: {wait: {wiat: 1s}}\n"


def files(cli: Cli, *arguments: str, code: int = 0) -> dict[str, dict[str, object]]:
    """Return the reports of a command by the names of the files."""
    reports = cli("validate", *arguments, "--json", code=code).json["files"]
    return {Path(report["file"]).name: report for report in reports}


def child_remark(cli: Cli) -> str:
    """Return the only remark about the parent."""
    report = cli("validate", "workflows/parent.yaml", "--json").json["files"][0]
    [remark] = report["remarks"]
    return str(remark)


def test_every_workflow_file_of_a_directory_is_checked(cli: Cli) -> None:
    """As for the workflow directory: the YAML files, and that their names differ."""
    cli.write("drafts/parent.yaml", PARENT)
    cli.write("drafts/child.yaml", CHILD)
    cli.write("drafts/data.json", "{}")
    found = files(cli, "drafts")
    assert set(found) == {"parent.yaml", "child.yaml"}
    assert found["parent.yaml"]["remarks"] == []
    cli.write("drafts/twin.yaml", CHILD)
    cli.write("alone.yaml", CHILD.replace("child", "alone"))
    found = files(cli, "alone.yaml", "drafts", code=2)
    assert set(found) == {"parent.yaml", "child.yaml", "twin.yaml", "alone.yaml"}
    assert "already taken by child.yaml" in str(found["twin.yaml"]["problems"])


def test_a_directory_without_workflow_files_is_refused(cli: Cli) -> None:
    """Nothing was checked, so nothing is right."""
    cli.write("drafts/notes.txt", "")
    assert "no workflow files in drafts" in cli("validate", "drafts", code=2).err


def test_a_remembered_directory_is_checked_again_when_a_file_is_added(cli: Cli) -> None:
    """The files of a directory are compared with each other, those of a command line are not."""
    cli.write("drafts/child.yaml", CHILD)
    time.sleep(0.05)
    assert set(files(cli, "drafts")) == {"child.yaml"}
    cli.write("drafts/twin.yaml", CHILD)
    time.sleep(0.05)
    assert set(files(cli, "drafts/child.yaml", "drafts/twin.yaml")) == {"child.yaml", "twin.yaml"}
    assert set(files(cli, "drafts", code=2)) == {"child.yaml", "twin.yaml"}


def test_a_child_whose_own_file_is_broken_is_not_called_missing(cli: Cli) -> None:
    """The remark names the file to mend, also where that file is named otherwise."""
    cli("init")
    cli.write("workflows/parent.yaml", PARENT)
    cli.write("workflows/second.yaml", BROKEN)
    remark = child_remark(cli)
    assert remark.startswith("step call: the file of the workflow 'child' has problems: ")
    assert remark.endswith("second.yaml")
    listed = {flow["name"]: flow for flow in cli("workflows", "--json").json}
    assert "second.yaml" in listed["parent"]["remarks"][0]
    # Text that is no YAML has no name: the name of the file stands for it.
    cli.write("workflows/second.yaml", CHILD.replace("child", "other"))
    cli.write("workflows/child.yaml", "name: [child\n")
    remark = child_remark(cli)
    assert remark.endswith("child.yaml")


def test_what_will_fail_stands_below_no_tick(cli: Cli) -> None:
    """A file that compiles is marked by what is remarked; `doctor` warns of the same."""
    cli.write("workflows/good.yaml", "name: good\nsteps: {rest: {wait: 1s}}\n")
    cli.write("workflows/bad.yaml", 'name: bad\nsteps: {get: {http: {get: "http://10.0.0.1/"}}}\n')
    shown = cli("validate").out
    assert "✓ " in shown and "good.yaml: good, 1 step" in shown
    assert "! " in shown and "bad.yaml: bad, 1 step" in shown
    assert "✓" not in next(line for line in shown.splitlines() if "bad.yaml" in line)
    warned = [found["message"] for found in cli("doctor", "--json", code=5).json["findings"]]
    assert any(text.startswith("bad: step get: 10.0.0.1 is not a public") for text in warned)
