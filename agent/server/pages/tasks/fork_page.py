"""Forking a task: choose the step to start from, see the repeated effects, and edit the input."""

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from agent.server.context import context_of
from agent.server.pages.forms import form_values
from agent.server.pages.framework import rendering
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import Form, PageRequest
from agent.server.pages.framework.sent_forms import key_of
from agent.server.pages.tasks.step_words import shown_status
from agent.server.pages.tasks.task_commands import (
    newer_version,
    newest_refusal,
    repeated_effects,
)
from agent.store.db.database import Connection
from agent.store.engine import task_rows, workflow_versions
from agent.tasks.operator.operator import CommandResult
from agent.tasks.read_models import task_overview

Document = dict[str, Any]

pages = PageRegistry("fork")


@pages.page("/tasks/{task_id}/fork", "fork.html", scope="operate")
def fork_page(connection: Connection, request: PageRequest) -> Document:
    """Return the steps to start from, and the effects that a fork from the chosen one repeats."""
    graphs = request.context.graphs
    task = task_overview.task_overview(
        connection, request.params["task_id"], graphs, request.context.database.clock.now()
    )
    graph = graphs.get(connection, task["workflow"], task["version"])
    first_step = request.query.get("from") or request.typed.get("from", "")
    chosen = graph.index_of.get(first_step, _first_choice(task))
    again = graph.downstream(chosen)
    newer = newer_version(connection, task)
    texts = workflow_versions.texts_of(connection, task["workflow"], task["version"])
    return {
        "task": task,
        "chosen": graph.steps[chosen].name,
        "choices": [(step["name"], shown_status(step, task["status"])) for step in task["steps"]],
        "again": [graph.steps[index].name for index in sorted(again)],
        "kept": sum(
            step["status"] == "succeeded" and step["index"] not in again for step in task["steps"]
        ),
        "repeated": repeated_effects(connection, task, chosen),
        "newer": newer,
        "newer_refusal": newest_refusal(connection, task, request, graph.steps[chosen].name)
        if newer is not None
        else "",
        "members": form_values.input_members(graph, texts[1] if texts else None),
        "has_inputs": bool(graph.inputs),
        "values": request.typed or form_values.shown_inputs(graph, task["input"]),
    }


def _first_choice(task: Document) -> int:
    """Return the first step that failed, else the first of all."""
    failed = [step["index"] for step in task["steps"] if step["status"] == "failed"]
    return int(failed[0]) if failed else 0


@pages.action("/tasks/{task_id}/fork/start", scope="operate")
async def fork(request: Request, form: Form) -> Response:
    """Start a fork with the inputs of the form; only those that were changed are edited."""
    task_id, context = request.path_params["task_id"], context_of(request)

    def change() -> CommandResult:
        with context.database.connect("reader") as connection:
            name, version = task_rows.workflow_of(connection, task_id)
            graph = context.graphs.get(connection, name, version)
            before = json.loads(task_rows.input_of(connection, task_id)[0])
        edited = form_values.edited_inputs(graph, form, before)
        return context.operator.fork(
            task_id,
            form.get("from", ""),
            edited,
            key_of(request, form),
            is_latest="latest" in form,
        )

    try:
        result = await context.command_pool.run(change)
    except Exception as error:
        return await rendering.respond_again(
            request,
            fork_page,
            form,
            error,
            "Nothing was started: ",
            {"from": form.get("from", "")},
        )
    return rendering.redirect(
        request, f"/tasks/{result.task_id}", rendering.sentence(result.message)
    )
