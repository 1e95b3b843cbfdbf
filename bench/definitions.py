"""The workflows that are measured, through the engine's own API and as files."""

from typing import Any, Final

from agent.workflows.graph import Graph

NOOP: Final = "bench.noops:noop"
STEPS: Final = 5
"""Steps of one task of the workload W."""


def chain(steps: int = STEPS) -> Graph:
    """Return steps that run one after the other."""
    return _graph("chain", {f"s{n}": [f"s{n - 1}"] if n else [] for n in range(steps)})


def group(items: int) -> Graph:
    """Return one step with a number of parallel items."""
    step = {"name": "items", "kind": "python", "config": {"call": NOOP}, "fanout": {"count": items}}
    return Graph.model_validate({"name": "group", "steps": [step]})


def question() -> Graph:
    """Return a step that waits for a person, and one that follows."""
    step = {"name": "ask", "kind": "approval", "config": {"message": "Go on?"}}
    after = {"name": "go", "kind": "python", "config": {"call": NOOP}, "depends_on": ["ask"]}
    return Graph.model_validate({"name": "question", "steps": [step, after]})


def signalled() -> Graph:
    """Return a step that waits for a signal."""
    step = {"name": "until", "kind": "wait", "config": {"signal": "go"}}
    return Graph.model_validate({"name": "signalled", "steps": [step]})


def diamonds(steps: int) -> Graph:
    """Return a graph with a number of steps that fans out, joins, fans out again and joins again."""
    return _graph("diamonds", _diamonds(steps))


def chain_file() -> str:
    """Return the workload W as a workflow file that has `noops.py` beside it."""
    lines = ["name: chain", "steps:"]
    for n in range(STEPS):
        lines.append(f"  s{n}:")
        if n:
            lines.append(f"    depends_on: [s{n - 1}]")
        lines.append('    python: {call: "noops:noop"}')
    return "\n".join(lines) + "\n"


def diamonds_file(steps: int) -> str:
    """Return a wide workflow file whose steps take their parents' outputs through templates."""
    lines = ["name: diamonds", "defaults: {timeout: 30s, retry: {max_attempts: 2}}", "steps:"]
    for name, parents in _diamonds(steps).items():
        lines.append(f"  {name}:")
        if not parents:
            lines.append(f'    python: {{call: "{NOOP}"}}')
            continue
        lines.append(f"    depends_on: [{', '.join(parents)}]")
        value = f"{{{{ steps.{parents[0]}.output }}}}"
        lines.append(f'    python: {{call: "bench.noops:echo", with: {{value: "{value}"}}}}')
    return "\n".join(lines) + "\n"


def _diamonds(steps: int) -> dict[str, list[str]]:
    first = [f"a{n}" for n in range(steps // 2)]
    second = [f"b{n}" for n in range(steps - 3 - len(first))]
    depends_on: dict[str, list[str]] = {"start": []}
    depends_on |= {name: ["start"] for name in first}
    depends_on["middle"] = first
    depends_on |= {name: ["middle"] for name in second}
    depends_on["end"] = second
    assert len(depends_on) == steps
    return depends_on


def _graph(name: str, depends_on: dict[str, list[str]]) -> Graph:
    steps: list[dict[str, Any]] = [
        {"name": step, "kind": "python", "config": {"call": NOOP}, "depends_on": parents}
        for step, parents in depends_on.items()
    ]
    return Graph.model_validate({"name": name, "steps": steps})
