"""The examples and the reference: everything shown compiles with the real kinds of steps."""

import re
from importlib import util
from pathlib import Path
from typing import Any

import pytest

from agent.workflows.compile.compiler import check_text
from agent.workflows.compile.models import (
    BudgetKeys,
    DefaultsKeys,
    RetryKeys,
    StepKeys,
    WorkflowKeys,
)
from agent.workflows.compile.triggers import ChatKeys, ScheduleKeys, WatchKeys, WebhookKeys
from agent.workflows.diagnostics import show
from agent.workflows.directory import Directory
from agent.workflows.graph import Graph
from agent.workflows.kind_registry import PLANNED, registered
from tests.support.documented import ROOT, Documented, documented_workflows

EXAMPLES = ROOT / "examples"
WATCHERS = EXAMPLES / "watch"
"""Examples that need something outside: `make run` does not start them."""
EXTERNAL = EXAMPLES / "workers"
"""Examples whose steps are done by programs outside, which stand beside them."""


def test_the_examples_are_a_directory_without_problems() -> None:
    """A handful of workflows, each with a description, and the tour among them."""
    directory = Directory(EXAMPLES)
    directory.scan()
    assert directory.problems == []
    assert 6 <= len(directory.workflows) <= 16
    assert "hello" in directory.workflows
    assert all(each.graph.description for each in directory.workflows.values())
    for name, each in directory.workflows.items():
        assert each.path.stem == name
        # The compiler need not check what it made of checked keys.
        assert each.graph.checked().text == each.graph.text


def test_the_watching_examples_are_without_problems() -> None:
    """Each has a watcher with an id, and a description."""
    directory = Directory(WATCHERS)
    directory.scan()
    assert directory.problems == []
    for each in directory.workflows.values():
        assert each.graph.description
        assert all(watch["id"] for watch in each.graph.on["watch"])


def test_the_examples_of_external_workers_are_without_problems() -> None:
    """Each queue has a worker of its name beside the workflow."""
    directory = Directory(EXTERNAL)
    directory.scan()
    assert directory.problems == []
    for each in directory.workflows.values():
        assert each.graph.description
        queues = {step.config["queue"] for step in each.graph.steps if step.kind == "worker"}
        assert queues
        assert all((EXTERNAL / f"{queue}.py").is_file() for queue in queues)


@pytest.mark.parametrize("path", [EXAMPLES, WATCHERS], ids=["examples", "watch"])
def test_every_function_that_an_example_calls_exists(path: Path) -> None:
    """`module:function` is found beside the file, and takes what `with` gives."""
    directory = Directory(path)
    directory.scan()
    calls = [
        (step.config["call"], step.config.get("with", {}))
        for each in directory.workflows.values()
        for step in each.graph.steps
        if step.kind == "python"
    ]
    assert calls
    for call, arguments in calls:
        module_name, function_name = call.split(":")
        spec = util.spec_from_file_location(f"example_{module_name}", path / f"{module_name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = util.module_from_spec(spec)
        spec.loader.exec_module(module)
        code = getattr(module, function_name).__code__
        assert set(arguments) <= set(code.co_varnames[: code.co_argcount]), call


def test_children_of_examples_are_examples() -> None:
    """A parent names workflows that are there."""
    directory = Directory(EXAMPLES)
    directory.scan()
    graphs: list[Graph] = [each.graph for each in directory.workflows.values()]
    children = {
        step.config["name"] for graph in graphs for step in graph.steps if step.kind == "workflow"
    }
    assert children
    assert children <= set(directory.workflows)


@pytest.mark.parametrize(
    "documented",
    [
        *documented_workflows(),
        *documented_workflows("triggers.md"),
        *documented_workflows("mail.md"),
        *documented_workflows("messages.md"),
        *documented_workflows("state.md"),
    ],
    ids=lambda each: f"line {each.line}",
)
def test_everything_documented_compiles(documented: Documented) -> None:
    """Every YAML block of the reference is a whole workflow without problems."""
    problems = check_text(documented.text, f"line {documented.line}")
    assert problems == [], show(problems, {f"line {documented.line}": documented.text})


def test_every_key_is_documented_with_an_example() -> None:
    """Each key of the language and of each kind stands in some YAML block of the reference."""
    blocks = "\n".join(documented.text for documented in documented_workflows())
    models: list[Any] = [WorkflowKeys, StepKeys, RetryKeys, DefaultsKeys]
    models += [ScheduleKeys, WebhookKeys, ChatKeys]
    models += [spec.model for name, spec in registered().items() if name not in ("do", "nap")]
    keys = {field.alias or name for model in models for name, field in model.model_fields.items()}
    # One is short for another, or stands in the table beside its siblings.
    keys -= {"on_failure", "effect", "head", "put", "patch", "delete", "data"}
    missing = sorted(key for key in keys if not re.search(rf"\b{key}:", blocks))
    assert missing == []
    text = (ROOT / "docs" / "workflows.md").read_text(encoding="utf-8")
    every = keys | set(BudgetKeys.model_fields) | set(WatchKeys.model_fields) | set(PLANNED)
    every |= {"on_failure", "effect", "head", "put", "patch", "delete", "data"}
    assert sorted(key for key in every if key not in text) == []


def test_examples_hold_nothing_of_a_machine() -> None:
    """No absolute paths of a home directory in what people copy."""
    for path in sorted(Path(EXAMPLES).glob("*")):
        if path.is_file():
            assert not re.search(r"/(home|root|Users)/", path.read_text(encoding="utf-8")), path
