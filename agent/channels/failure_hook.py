"""Starts a workflow for each task that fails: `on_failure = "workflow:NAME"` in [notify].

It is a channel: its cursor moves once the workflow's task exists, whose dedupe key is the failed task, so
that each failure starts one task, through any crash.
"""

import asyncio
from typing import Final

from agent.channels.channel import DeliveryError, Notification
from agent.core.clock import to_iso
from agent.store.db.database import Database
from agent.store.db.json_values import decode
from agent.store.read import views
from agent.tasks.errors import NotFoundError
from agent.tasks.operator.operator import Operator
from agent.tasks.submission import new_submission, recorded_workflow

_MOST_REFUSALS: Final = 3


class FailureHook:
    """Starts one workflow; the data of the failure is its `trigger`."""

    events = ("task.failed",)
    reports_ends = False

    def __init__(self, name: str, workflow: str, database: Database, steps_per_task: int) -> None:
        self.name = name
        self._workflow = workflow
        self._database = database
        self._steps_per_task = steps_per_task

    async def deliver(self, notification: Notification) -> None:
        """Start the workflow, unless what failed is the workflow itself, or a child of another task."""
        if notification.event in self.events:
            await asyncio.to_thread(self._start, notification)

    async def update(self, notification: Notification) -> None:
        """Do nothing: a question is no failure."""

    async def receive(self) -> bool:
        """Return False: nothing is received here."""
        return False

    async def close(self) -> None:
        """Nothing stays open."""

    def _start(self, notification: Notification) -> None:
        assert notification.task is not None
        task_id = str(notification.task["id"])
        with self._database.connect("reader") as connection, connection.snapshot():
            task = views.task(connection, task_id)
            workflow = recorded_workflow(connection, self._workflow)
        if task is None or task["parent_task_id"] is not None:
            # The parent of a child fails as well, or has gone on without it.
            return
        if task["workflow_name"] == self._workflow:
            return
        if workflow is None:
            raise DeliveryError(f"on_failure in [notify]: there is no workflow {self._workflow!r}")
        trigger = {
            "kind": "failure",
            "task": task_id,
            "workflow": task["workflow_name"],
            "error": decode(task["error"]),
            "ended_at": to_iso(task["ended_at"]),
        }
        try:
            submission = new_submission(
                workflow,
                steps_per_task=self._steps_per_task,
                trigger=trigger,
                dedupe_key=f"failure:{self._workflow}:{task_id}",
            )
            Operator(self._database, self._database.clock).submit(submission)
        except (ValueError, NotFoundError) as error:
            raise DeliveryError(
                f"on_failure in [notify]: {self._workflow} cannot start: {error}",
                max_attempts=_MOST_REFUSALS,
            ) from None
