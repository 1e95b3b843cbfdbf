"""Agents of a scenario that remember texts and start tasks: each happens once, whatever goes wrong."""

import json
import random
from collections.abc import Callable
from typing import Any

from agent.core.clock import Clock
from agent.core.thread_bridge import UnboundedThreads
from agent.store.db.database import Database
from agent.tasks.worker.worker import Worker
from agent.tool_services.engine_control import EngineControl
from agent.tool_services.memories import Memories
from agent.tool_services.tool_memory import ToolMemory
from tests.simulation.loop import SimulatedLoop

JsonObject = dict[str, Any]

NOTED: JsonObject = {
    "name": "noted",
    "inputs": {"line": {"default": ""}},
    "steps": [{"name": "rest", "kind": "wait", "config": {"duration": 0.5}, "depends_on": []}],
}
"""The workflow that agents start."""
_TOOLS: JsonObject = {
    "notes": {"memory": {"scope": "simulated"}},
    "engine": {"engine": {"allow": ["list", "start"], "workflows": ["noted"]}, "approve": "never"},
}


def give_notes(chance: random.Random, graphs: list[JsonObject]) -> bool:
    """Let most agents of a scenario also remember and start something; return whether one does."""
    number = 0
    for step in (step for graph in graphs for step in graph["steps"]):
        if step["kind"] != "agent" or chance.random() < 0.3:
            continue
        config = step["config"]
        before, fence, rest = config["goal"].partition("```echo\n")
        script, end = json.loads(rest.partition("\n```")[0]), "\n```"
        for place in sorted(chance.sample(range(len(script)), min(2, len(script))), reverse=True):
            number += 1
            script.insert(place, _turn(chance, number))
        config["goal"] = f"{before}{fence}{json.dumps(script)}{end}"
        config["tools"] |= _TOOLS
        config["max_turns"] = 15
    return number > 0


def _turn(chance: random.Random, number: int) -> JsonObject:
    line = f"{{{{ inputs.line }}}} {number}"
    remember = {"name": "notes_remember", "arguments": {"text": line}}
    start = {"name": "engine_start", "arguments": {"workflow": "noted", "inputs": {"line": line}}}
    recall = {"name": "notes_recall", "arguments": {"query": str(number)}}
    uses = chance.choice([[remember], [start], [remember, start], [start, remember, recall]])
    return {"tool_uses": uses, "tokens_in": 10, "tokens_out": 5}


class _Threads(UnboundedThreads):
    """Threads of a simulated process."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def start(self, function: Callable[[], Any]) -> Any:
        """Run a function as blocking work of the simulated machine."""
        return self._loop.run_blocking(function)


def equip(worker: Worker, database: Database, clock: Clock, loop: SimulatedLoop) -> None:
    """Give a worker the services of the tools, as `bootstrap` does."""
    worker.services.threads = _Threads(loop)
    worker.services.memory = ToolMemory(Memories(database, clock))
    worker.services.engine = EngineControl(database, clock, 1000)


def broken_promises(database: Database) -> list[str]:
    """Return what agents have remembered or started more than once."""
    with database.connect("reader") as connection:
        memories = connection.query(
            "SELECT text, count(*) FROM memories GROUP BY text HAVING count(*) > 1 ORDER BY text"
        )
        tasks = connection.query(
            "SELECT input, count(*) FROM tasks WHERE workflow_name = 'noted' AND retry_of IS NULL"
            " AND forked_from IS NULL GROUP BY input HAVING count(*) > 1 ORDER BY input"
        )
    return [f"{text!r} was remembered {count} times" for text, count in memories] + [
        f"noted was started {count} times for {given}" for given, count in tasks
    ]


def counts(database: Database) -> tuple[int, int]:
    """Return how many memories were written and how many tasks agents have started."""
    with database.connect("reader") as connection:
        ((memories, tasks),) = connection.query(
            "SELECT (SELECT count(*) FROM memories),"
            " (SELECT count(*) FROM tasks WHERE workflow_name = 'noted')"
        )
    return int(memories), int(tasks)
