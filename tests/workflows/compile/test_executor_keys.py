"""The key `executor` of a step."""

import pytest

from agent.core.ids import canonical_json
from agent.workflows.compile.compiler import compile_text
from agent.workflows.diagnostics import WorkflowError
from agent.workflows.graph import Graph

STEP = """
name: executed
steps:
  it:
    {kind}
    executor: {executor}
"""


def compiled(executor: str, kind: str = "python: os:getcwd") -> Graph:
    """Return the graph of one step with this executor."""
    return compile_text(STEP.format(kind=kind, executor=executor), "executed.yaml")


@pytest.mark.parametrize(
    ("written", "document"),
    [
        ("process", {"name": "process"}),
        ("{process: }", {"name": "process"}),
        ("{process: {memory: 512MB, cpu_seconds: 5, files: 64}}",
         {"name": "process", "memory": 512 * 2**20, "cpu_seconds": 5, "files": 64}),
        ("{process: {memory: 1.5 GiB}}", {"name": "process", "memory": 3 * 2**29}),
        ("{job: {start_within: 2h}}", {"name": "job", "start_within": 7200.0}),
        ("{ray: {num_gpus: 0.5, resources: {fast: 1}}}",
         {"name": "ray", "num_gpus": 0.5, "resources": {"fast": 1.0}}),
        ("local", {"name": "local"}),
    ],
)  # fmt: skip
def test_an_executor_is_a_name_or_a_mapping(written: str, document: dict[str, object]) -> None:
    """Both forms become the name with its options; sizes become bytes, durations seconds."""
    graph = compiled(written)
    assert graph.steps[0].executor == document
    assert (
        Graph.model_validate_json(canonical_json(graph.model_dump(exclude_defaults=True)))
        .steps[0]
        .executor
        == document
    )


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("proces", "there is no executor 'proces'; did you mean 'process'?"),
        ("{proces: {}}", "there is no key 'proces' here"),
        ("{process: {}, job: {}}", "name exactly one executor: local, process, job, ray, dask"),
        ("{process: {memory: lots}}", "'lots' is not a size such as 512MB or 2GB"),
        ("{process: {memory: 1KB}}", "must be at least"),
        ("{process: {cpus: 2}}", "there is no key 'cpus' here"),
        ("[process]", "must be a mapping"),
    ],
)
def test_a_wrong_executor_is_refused(written: str, message: str) -> None:
    """The message says what is wrong, and what there is."""
    with pytest.raises(WorkflowError) as refused:
        compiled(written)
    assert message in str(refused.value)


def test_only_steps_with_code_have_an_executor() -> None:
    """A request or a wait runs nothing that could run elsewhere."""
    with pytest.raises(WorkflowError, match="an executor runs the code of python and shell steps"):
        compiled("process", "wait: 1s")
