"""A scenario: the decisions before a run, as plain data that can be stored, shrunk and replayed.

The order of events is decided during the run, by the scenario's seed.
"""

import json
import random
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agent.workflows.graph import Graph
from tests.simulation.agent_tools import NOTED, give_notes
from tests.simulation.disk import CARRIED, COMMIT_FAULTS
from tests.simulation.job_draws import draw_jobs, has_jobs
from tests.simulation.state_draws import draw_state, has_state
from tests.simulation.trigger_draws import draw_triggers, has_conversations, has_triggers
from tests.simulation.work_draws import draw_workers, has_workers

HORIZON_SECONDS = 40.0
"""Operators act and faults strike in this time; then all is well and everything must end."""

JsonObject = dict[str, Any]

_FUNCTIONS = "tests.simulation.functions"
_QUICK = {"max_attempts": 6, "delay_seconds": 0.5}
_CARRIED = sorted(CARRIED.keys() - {"firing", "state", "work"})
"""What any run carries to the disk."""


@dataclass
class Scenario:
    """What is run, what people do, and what goes wrong."""

    seed: int
    workers: int
    """One is a daemon that puts things in order at its start; several watch each other."""
    graphs: list[JsonObject] = field(default_factory=list)
    submissions: list[JsonObject] = field(default_factory=list)
    """`at`, `graph`, `key` (the same one twice is one task), `by` (worker or operator)."""
    operations: list[JsonObject] = field(default_factory=list)
    """`at`, `do`, and the `task` that it is done to, by the number of its submission."""
    faults: list[JsonObject] = field(default_factory=list)
    """`kind`, and when it strikes: `at` a time; at a `callback` or `commit` of one `life`; or at a
    `callback`, or the commit of this `number` that is `carrying` something, of whichever worker."""
    is_attended: bool = False
    """Whether a person answers questions, truthfully, while faults still happen."""
    sources: list[JsonObject] = field(default_factory=list)
    """What watchers poll: `name`, the times of its `items`, its `mode`, and the `plan` of its polls."""
    trigger_operations: list[JsonObject] = field(default_factory=list)
    """`at`, `do`, and the `trigger` that it is done to."""
    external: list[JsonObject] = field(default_factory=list)
    """External workers: the `queues` of each, and the `plan` of what it does with its work."""
    jobs: JsonObject = field(default_factory=dict)
    """Jobs: the `plan` of what becomes of each, and the `outages` of their store, with their times."""
    is_retried: bool = False
    """Whether a person finally retries whatever has not succeeded, and the result of that."""

    def text(self) -> str:
        """Serialize it."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> "Scenario":
        """Parse a serialized one."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def draw(seed: int) -> Scenario:
    """Draw a scenario from a seed."""
    chance = random.Random(f"scenario {seed}")
    workers = 1 if chance.random() < 0.4 else chance.randint(2, 3)
    graphs = [_graph(chance, "grandchild", None), _graph(chance, "child", "grandchild")]
    graphs += [_graph(chance, f"flow{number}", "child") for number in range(2)]
    scenario = Scenario(seed, workers, graphs)
    for number in range(chance.randint(1, 4)):
        scenario.submissions += _submissions(chance, number)
    count = len(scenario.submissions)
    for _ in range(chance.randint(0, 8)):
        operation = _operation(chance, count)
        scenario.operations.append(operation)
        if chance.random() < 0.2:
            # A person taps twice.
            scenario.operations.append({**operation, "at": operation["at"] + chance.choice([0, 1])})
    for _ in range(chance.randint(0, 12)):
        scenario.faults.append(_fault(chance, workers))
    scenario.is_attended = chance.random() < 0.6
    scenario.is_retried = chance.random() < 0.5
    _vary(random.Random(f"variations {seed}"), graphs)
    if give_notes(random.Random(f"notes {seed}"), graphs):
        graphs.append(deepcopy(NOTED))
    if has_triggers(seed):
        _add_triggers(scenario)
    if has_state(seed):
        draw_state(seed, graphs, scenario.operations)
        _add_commit_faults(scenario, "state", random.Random(f"state faults {seed}"))
    if has_conversations(seed):
        _add_conversations(scenario)
    if has_workers(seed):
        _add_workers(scenario)
    if has_jobs(seed):
        _add_jobs(scenario)
    return scenario


def _add_jobs(scenario: Scenario) -> None:
    """Add steps that run as jobs, and operations on their tasks."""
    graphs, submissions, scenario.jobs = draw_jobs(scenario.seed)
    scenario.graphs += graphs
    del scenario.submissions[1:]
    scenario.operations = [each for each in scenario.operations if each["task"] <= 0]
    scenario.submissions += submissions
    chance = random.Random(f"job faults {scenario.seed}")
    for _ in range(chance.randint(0, 4)):
        scenario.operations.append(_operation(chance, len(scenario.submissions)))
    for _ in range(chance.randint(0, 2)):
        scenario.faults.append(_fault(chance, scenario.workers))


def _add_workers(scenario: Scenario) -> None:
    """Add external workers with their work, and faults of the commits that change it."""
    graphs, submissions, scenario.external = draw_workers(scenario.seed)
    scenario.graphs += graphs
    del scenario.submissions[1:]
    scenario.operations = [each for each in scenario.operations if each["task"] <= 0]
    scenario.submissions += submissions
    chance = random.Random(f"work faults {scenario.seed}")
    count = len(scenario.submissions)
    for _ in range(chance.randint(0, 4)):
        scenario.operations.append(_operation(chance, count))
    for _ in range(2):
        _add_commit_faults(scenario, "work", chance)
    if chance.random() < 0.5:
        seconds = chance.choice([-1, 1]) * chance.choice([3, 30, 3600])
        at = round(chance.uniform(5, HORIZON_SECONDS), 3)
        scenario.faults.append({"kind": "jump", "at": at, "seconds": float(seconds)})


def _add_triggers(scenario: Scenario) -> None:
    """Add schedules and watchers, and faults of the commits that record what they fire."""
    graphs, scenario.sources, scenario.trigger_operations = draw_triggers(scenario.seed)
    scenario.graphs += graphs
    # Few other tasks: the passes of triggers take most of the time of such a run.
    del scenario.submissions[1:]
    scenario.operations = [each for each in scenario.operations if each["task"] <= 0]
    chance = random.Random(f"firing faults {scenario.seed}")
    _add_commit_faults(scenario, "firing", chance)
    if chance.random() < 0.5:
        # Instants come a second time, or many pass at once.
        seconds = chance.choice([-1, 1]) * chance.choice([5, 15, 3600])
        at = round(chance.uniform(5, HORIZON_SECONDS), 3)
        scenario.faults.append({"kind": "jump", "at": at, "seconds": float(seconds)})


def _add_commit_faults(scenario: Scenario, carrying: str, chance: random.Random) -> None:
    """Let some of the commits go wrong that carry one thing."""
    for _ in range(chance.randint(0, 4)):
        way = chance.choice(COMMIT_FAULTS)
        number = _early(chance, 12)
        fault = {"kind": "commit", "carrying": carrying, "number": number, "way": way}
        scenario.faults.append(fault)


def _add_conversations(scenario: Scenario) -> None:
    """Let people talk to agents, some of whom ask before they act; now and then they want it forgotten."""
    chance = random.Random(f"conversations {scenario.seed}")
    for number in range(2):
        config = {**_agent(chance), "conversation": "{{ trigger.conversation }}"}
        script = config["goal"].split("```echo\n")[1].removesuffix("\n```")
        # In the system prompt, so that no summary contains it.
        config["system"] = f'```echo\n{{"^hello": {script}, "": ["they have talked"]}}\n```'
        config["goal"] = "hello from {{ inputs.line }}, " + 40 * "and so on "
        config["conversation_tokens"] = chance.choice([200, 100_000])
        said = {"name": "said", "kind": "agent", "config": config, "retry": _QUICK}
        then = {"name": "then", "depends_on": ["said"], "retry": _QUICK}
        then |= python_step("touch", {"plan": [chance.choice(["ok", "error"])], "seconds": 0.1})
        graph = {"name": f"talk{number}", "inputs": {"line": {"type": "string"}}}
        scenario.graphs.append({**graph, "steps": [said, then]})
    for number in range(chance.randint(3, 6)):
        at = round(chance.uniform(0, 8), 3)
        who, talk = chance.choice(["ada", "ada", "bob"]), f"talk{chance.randrange(2)}"
        message = {"at": at, "graph": talk, "key": f"message-{number}", "chat": who}
        scenario.submissions.append({**message, "by": "operator"})
    if chance.random() < 0.5:
        forget = {"at": round(chance.uniform(8, 28), 3), "do": "forget", "task": 0}
        scenario.operations.append(forget)


def _vary(chance: random.Random, graphs: list[JsonObject]) -> None:
    """Let some calls be refused for good, and some change their request in every attempt."""
    for step in (step for graph in graphs for step in graph["steps"]):
        if step["config"].get("call") != f"{_FUNCTIONS}:act":
            continue
        given = step["config"]["with"]
        given["changes"] = chance.random() < 0.25
        if chance.random() < 0.3:
            given["plan"] = [*given["plan"][:1], "noted"]


def _submissions(chance: random.Random, number: int) -> list[JsonObject]:
    key = f"hook-{number}" if chance.random() < 0.7 else None
    at = round(chance.uniform(0, 5), 3)
    graph = chance.choice(["flow0", "flow1"])
    first = {"at": at, "graph": graph, "key": key, "by": chance.choice(["worker", "operator"])}
    if key is None or chance.random() < 0.6:
        return [first]
    # Delivered again, at once or much later.
    later = round(at + chance.choice([0.0, 0.001, chance.uniform(0, 20)]), 3)
    return [first, {**first, "at": later, "by": chance.choice(["worker", "operator"])}]


def _operation(chance: random.Random, count: int) -> JsonObject:
    words = ["pause", "resume", "cancel", "retry", "fork", "signal", "answer", "answer"]
    at = round(HORIZON_SECONDS * chance.random() ** 2, 3)
    operation = {"at": at, "do": chance.choice(words), "task": chance.randrange(count)}
    if operation["do"] in _COMMANDS and chance.random() < 0.4:
        # Some child, or the task that came last.
        operation["task"] = chance.choice([-1, -2])
    return operation


_COMMANDS = ("pause", "resume", "cancel", "retry", "fork")

_KINDS = (
    *("kill", "kill", "end", "stop", "commit", "commit", "commit", "commit"),
    *("jump", "weather", "weather", "operator", "operator"),
)
"""What may go wrong, the more often the more ways it has."""


def _fault(chance: random.Random, workers: int) -> JsonObject:
    kind = chance.choice(_KINDS)
    if workers > 1 and chance.random() < 0.25:
        return _zombie(chance)
    if kind == "commit":
        way = chance.choice(COMMIT_FAULTS)
        carrying = chance.choice(_CARRIED)
        return {"kind": kind, "carrying": carrying, "number": _early(chance, 8), "way": way}
    if kind == "operator":
        ways = [way for way in COMMIT_FAULTS if way.split()[0] not in ("damaged", "stopped")]
        way = chance.choice(ways)
        commit = chance.choice([1, 1, 1, 2])
        return {"kind": kind, "life": chance.randrange(6), "commit": commit, "way": way}
    if kind in ("kill", "end", "stop"):
        fault: JsonObject = {"kind": kind, "callback": _early(chance, 400)}
        if kind == "stop":
            fault["seconds"] = round(chance.uniform(1, 20), 3)
        return fault
    at = round(HORIZON_SECONDS * chance.random() ** 2, 3)
    if kind == "jump":
        seconds = round(chance.choice([-1, 1]) * chance.choice([0.01, 1, 30, 3600]), 3)
        return {"kind": kind, "at": at, "seconds": seconds}
    weather = chance.choice(["full", "lost", "slow", "deaf", "torn", "busy"])
    return {"kind": weather, "at": at, "seconds": round(chance.uniform(0.05, 10), 3)}


def _zombie(chance: random.Random) -> JsonObject:
    """Stop a worker until others have taken over, mostly at the worst moment."""
    if chance.random() < 0.3:
        seconds = round(chance.uniform(8, 20), 3)
        return {"kind": "stop", "callback": _early(chance, 400), "seconds": seconds}
    # Nothing of what it has just recorded has begun yet.
    carrying = chance.choice(["intent", "intent", "intent", "change"])
    number = _early(chance, 8)
    return {"kind": "commit", "carrying": carrying, "number": number, "way": "stopped after"}


def _early(chance: random.Random, most: int) -> int:
    """Draw a number that is more often small: much happens at the start of a process."""
    return 1 + int(chance.random() ** 2 * most)


def _graph(chance: random.Random, name: str, child: str | None) -> JsonObject:
    count = chance.randint(1, 6 if name.startswith("flow") else 3)
    steps: list[JsonObject] = []
    for index in range(count):
        steps.append(_step(chance, index, [step["name"] for step in steps], child))
    graph: JsonObject = {"name": name, "steps": steps, "inputs": {"line": {"default": ""}}}
    if chance.random() < 0.3:
        graph["max_parallel"] = chance.randint(1, 3)
    if chance.random() < 0.3:
        graph["fail_fast"] = False
    if chance.random() < 0.15:
        graph["timeout_seconds"] = chance.choice([5.0, 20.0, 60.0])
    if chance.random() < 0.2:
        graph["priority"] = chance.choice(["high", "low"])
    if any(step["kind"] in _SPENDING for step in steps) and chance.random() < 0.5:
        graph["budget"] = _budget(chance)
    Graph.model_validate(graph)
    return graph


_SPENDING = ("llm", "agent", "workflow")


def _budget(chance: random.Random) -> JsonObject:
    tokens = chance.choice([30, 80, 200, 1000])
    return {"tokens": tokens, "on_exhausted": chance.choice(["pause", "fail"])}


def _step(chance: random.Random, index: int, before: list[str], child: str | None) -> JsonObject:
    kind = chance.choice(
        [
            "touch",
            "touch",
            "act",
            "act",
            "act",
            "once",
            "once",
            "save",
            "group",
            "group",
            "each",
            "many",
        ]
        + ["timer", "signal", "approval", "input", "llm", "agent", "gated"]
        + (["child", "child"] if child is not None else [])
    )
    step: JsonObject = {"name": f"s{index}", "depends_on": _some(chance, before)}
    step["retry"] = {
        "max_attempts": chance.choice([1, 2, 3, 8, 8]),
        "delay_seconds": chance.choice([0.0, 0.1, 2.0]),
        "jitter": chance.random() < 0.5,
    }
    step.update(_doing(chance, kind, before, child))
    if step["kind"] == "workflow":
        item = "[{{ parallel_index }}]" if "fanout" in step else ""
        step["config"]["with"] = {"line": f"{{{{ inputs.line }}}}/{step['name']}{item}"}
    if step["kind"] in _SPENDING and chance.random() < 0.1:
        step["budget"] = _budget(chance)
    if "taken" in step["config"].get("with", {}):
        step["refers_to"] = [before[-1]]
    if step["depends_on"]:
        step["run_on"] = chance.choice(["success", "success", "success", "failure", "always"])
        if chance.random() < 0.1:
            step["condition"] = chance.choice(["true", "false", "1 == 1"])
    if chance.random() < 0.2 and step["kind"] == "python":
        step["timeout_seconds"] = chance.choice([1.0, 10.0])
    return step


def _doing(chance: random.Random, kind: str, before: list[str], child: str | None) -> JsonObject:
    seconds = chance.choice([0.0, 0.05, 0.5, 2.0])
    words = ["ok", "ok", "ok", "definite", "refused", "lost", "unheard", "adrift", "late"]
    plan = [chance.choice(words) for _ in range(chance.randint(0, 3))]
    match kind:
        case "group":
            doing = _doing(
                chance, chance.choice(["touch", "act", "once", "signal", "gated"]), before, child
            )
            fanout: JsonObject = {"count": chance.randint(0, 5)}
            if chance.random() < 0.6:
                fanout["concurrency"] = chance.randint(1, 3)
            return {**doing, "fanout": fanout}
        case "each":
            doing = _doing(chance, chance.choice(["touch", "act", "child"]), before, child)
            if before and chance.random() < 0.5:
                # What the step before gave may be no list, or nothing.
                fanout = {"items_of": f"steps.{before[-1]}.output or []"}
                return {**doing, "fanout": fanout, "depends_on": [before[-1]]}
            return {**doing, "fanout": {"items": list(range(chance.randint(0, 4)))}}
        case "many":
            return python_step("many", {"count": chance.randint(0, 4)})
        case "act":
            policy = chance.choice(["ask", "ask", "reconcile", "reconcile", "retry", "fail"])
            given = {"plan": plan, "seconds": seconds, "policy": policy}
            return python_step("act", {**given, "calls": chance.choice([1, 1, 2, 3])})
        case "once":
            return python_step("once", {"plan": plan, "seconds": seconds}, effect="once")
        case "save":
            return python_step("save", {"rounds": chance.randint(1, 5), "seconds": seconds})
        case "timer":
            return {"kind": "wait", "config": {"duration": chance.choice([0, 0.5, 8.0])}}
        case "signal":
            return {"kind": "wait", "config": {"signal": chance.choice(["go", "now"])}}
        case "approval" | "input":
            return {"kind": kind, "config": _question(chance)}
        case "gated":
            given = {"plan": plan, "seconds": seconds}
            return {**python_step("once", given, effect="once"), "approval": _question(chance)}
        case "llm":
            config = {"prompt": "hello there", "model": "echo", "max_tokens": 10}
            return {"kind": "llm", "config": config}
        case "agent":
            return {"kind": "agent", "config": _agent(chance)}
        case "child" if child is not None:
            return {"kind": "workflow", "config": {"name": child}}
    plan = [chance.choice(["ok", "ok", "error", "refused", "late"]) for _ in plan]
    touched: JsonObject = {"plan": plan, "seconds": seconds}
    if before and chance.random() < 0.3:
        touched["taken"] = f"{{{{ steps.{before[-1]}.output }}}}"
    if chance.random() < 0.2:
        touched["size"] = 5_000
    return python_step("touch", touched)


def _agent(chance: random.Random) -> JsonObject:
    script: list[JsonObject] = []
    number = 10 * chance.randrange(100_000)  # another for each step
    for _ in range(chance.randint(1, 3)):
        uses = []
        for _ in range(chance.choice([1, 1, 2])):
            number += 1
            word = chance.choice(["ok", "ok", "definite", "unheard"])
            arguments = {"line": "{{ inputs.line }}", "number": number, "word": word}
            uses.append({"name": "use", "arguments": arguments})
        script.append({"tool_uses": uses, "tokens_in": 10, "tokens_out": 5})
    script.append({"text": "done", "tokens_in": 10, "tokens_out": 5})
    approve = chance.choice(["never", "never", "always"])
    tool = {"python": f"{_FUNCTIONS}:use", "approve": approve}
    goal = f"use it\n```echo\n{json.dumps(script)}\n```"
    return {"goal": goal, "model": "echo", "max_turns": 9, "tools": {"use": tool}}


def python_step(function: str, given: JsonObject, **options: Any) -> JsonObject:
    """Return the kind and the configuration of a step that calls one of the simulated functions."""
    call = f"{_FUNCTIONS}:{function}"
    return {"kind": "python", "config": {"call": call, "with": given, **options}}


def _question(chance: random.Random) -> JsonObject:
    question: JsonObject = {"message": "May I?"}
    if chance.random() < 0.4:
        question["expires"] = chance.choice([2, 15])
        question["on_expiry"] = chance.choice(["fail", "renew"])
    if chance.random() < 0.3:
        question["remind"] = 3
    return question


def _some(chance: random.Random, names: list[str]) -> list[str]:
    return [name for name in names if chance.random() < 0.45]
