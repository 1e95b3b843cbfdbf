"""A task's activity: its stored status, except that some running tasks are `waiting`.

A running task is **waiting** when none of its steps runs, none is ready to be claimed, and no external
worker has one. Then each of its open steps waits on a timer, a signal, a child, an approval, an unknown
call or a worker, is between two attempts, or depends on a step that does. A step that was claimed and
whose worker cannot reach the artifact store still runs.

The expression reads columns of the task and, of one that is due and has no running step, the index of
its steps that have a wake time. No index holds `activity` itself: every claim would write it.
"""

from enum import StrEnum

from agent.core.state_machine import TaskStatus
from agent.store.db.dialect import Sql
from agent.store.engine.work_rows import leased


class Activity(StrEnum):
    """Every status of a task, and `waiting`."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


def expression(sql: Sql, task: str) -> str:
    """Return the SQL expression of a task's activity; `task` is the alias of its row."""
    return f"CASE WHEN {_is_waiting(sql, task)} THEN 'waiting' ELSE {task}.status END"


def condition(sql: Sql, task: str, activity: str) -> str:
    """Return the SQL condition that a task has an activity, led by the index on statuses."""
    if activity not in (Activity.WAITING, Activity.RUNNING):
        return f"{task}.status = '{TaskStatus(activity)}'"
    negation = "" if activity == Activity.WAITING else "NOT "
    return f"{task}.status = 'running' AND {negation}({_is_waiting(sql, task)})"


def _is_waiting(sql: Sql, task: str) -> str:
    # A scalar subquery reads the clock once, and lets PostgreSQL compare with it in the index.
    now = f"(SELECT {sql.now_us})"
    # A task with a step that is ready is due itself: steps of others need not be read.
    return (
        f"{task}.status = 'running' AND {task}.steps_running = 0"
        f" AND (coalesce({task}.next_wake_time > {now}, true) OR NOT EXISTS"
        f" (SELECT 1 FROM steps AS ready WHERE ready.task_id = {task}.id"
        f" AND ready.wake_at <= {now} AND ready.status = 'pending'))"
        # A lease is a wake time too.
        f" AND ({task}.next_wake_time IS NULL OR NOT EXISTS (SELECT 1 FROM steps AS leased"
        f" WHERE leased.task_id = {task}.id AND {leased('leased')}))"
    )
