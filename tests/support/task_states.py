"""A task in each status, as real transactions leave it."""

from agent.core import ids
from agent.core.state_machine import TaskStatus
from agent.core.waits import Signal, UnknownCall
from agent.steps.types.outcome import Succeeded, Waiting
from agent.store.engine import workflow_versions
from agent.tasks.rules import row_writer
from agent.tasks.rules.creation import blank_step
from agent.tasks.state.locked_task import LockedTask
from agent.tasks.state.rows import TaskRow
from tests.support.approvals import resolve
from tests.support.engine import Hand, graph, other, step
from tests.support.interventions import intend

GRAPH = graph(
    step("pay"),
    other("hear", "wait", config={"signal": "go"}),
    step("last", after=["pay", "hear"]),
)


def create_unstarted(hand: Hand) -> str:
    """Write a task that is to start later."""
    now = hand.clock.now()
    with hand.database.connect("writer") as tx, tx.transaction():
        version = workflow_versions.register(
            tx, GRAPH.name, GRAPH.hash, GRAPH.text, None, None, now
        )
        task = TaskRow.new(
            ids.new_id(), "pending", workflow_name=GRAPH.name, workflow_version=version
        )
        task.set_columns(input="{}", trigger="null", created_at=now)
        locked = LockedTask(task, GRAPH, now, is_new=True)
        for index in range(len(GRAPH.steps)):
            locked.add(blank_step(GRAPH, task.id, index))
        task.steps_open = len(GRAPH.steps)
        locked.emit("task.created")
        row_writer.write(tx, [locked], now)
    return task.id


def arrange(hand: Hand, status: TaskStatus) -> str:
    """Bring a task into a state; where it is alive, a step asks a person and one hears a signal."""
    if status == TaskStatus.PENDING:
        return create_unstarted(hand)
    task_id = hand.start(GRAPH)
    call_id = intend(hand, hand.claimed("pay", task_id))
    waits = {"pay": Waiting(UnknownCall(call_id)), "hear": Waiting(Signal("go"))}
    hand.settle(waits, task_id)
    if status == TaskStatus.PAUSED:
        hand.operator.pause(task_id)
    elif status == TaskStatus.CANCELED:
        hand.operator.cancel(task_id)
    elif status == TaskStatus.FAILED:
        resolve(hand.database, task_id, "pay", "fail")
    elif status == TaskStatus.SUCCEEDED:
        resolve(hand.database, task_id, "pay", "done")
        hand.operator.signal(task_id, "go")
        hand.commit()
        hand.settle({"pay": Succeeded(), "hear": Succeeded()}, task_id)
        hand.succeed("last", task_id=task_id)
    assert hand.status(task_id) == status
    return task_id
