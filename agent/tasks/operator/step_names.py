"""Steps and signals by the names that people write, with hints for names that do not exist."""

from agent.store.db.database import Connection
from agent.tasks.errors import NotFoundError
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import StepRow
from agent.workflows.diagnostics import did_you_mean
from agent.workflows.graph import Graph
from agent.workflows.templates.templates import is_template

_MAX_DIGITS = 9


def find_step(tx: Connection, locked: LockedTask, name: str) -> StepRow:
    """Return a step by its name; an item by its name and number, as in `lines[3]`."""
    base, _, number = name.rstrip("]").partition("[")
    index = locked.graph.index_of.get(base)
    is_number = number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS
    if index is None or (number and not is_number):
        raise no_such_step(locked.graph, name)
    address = (index, int(number) if number else -1)
    locked.load(tx, [address])
    step = locked.steps.get(address)
    if step is None:
        raise no_such_step(locked.graph, name)
    return step


def no_such_step(graph: Graph, name: str) -> NotFoundError:
    """Return the error for a step that a workflow does not have."""
    hint = did_you_mean(name, graph.index_of)
    return NotFoundError(f"the task has no step called {name!r}" + (f"; {hint}" if hint else ""))


def never_received(graph: Graph, name: str) -> str:
    """Return a warning where no step of a workflow can ever wait for a signal."""
    signals = [step.config.get("signal") for step in graph.steps if step.kind == "wait"]
    known = list(dict.fromkeys(signal for signal in signals if isinstance(signal, str)))
    if name in known or any(map(is_template, known)):
        return ""
    hint = did_you_mean(name, known) or (f"there are {', '.join(known)}" if known else None)
    return f", and none of {graph.name!r} does" + (f"; {hint}" if hint else "")
