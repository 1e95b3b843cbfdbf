"""Recorded workflows: list, show, and change those that are not defined in files."""

import asyncio
from contextlib import ExitStack
from typing import Annotated, Any, Final, Literal

from fastapi import Path
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from agent.server.context import Context, caller, context_of
from agent.server.problems import Problem, unsupported
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry
from agent.server.schemas.workflows import (
    Validation,
    WorkflowDocument,
    WorkflowList,
    WorkflowSource,
)
from agent.store.db.database import Connection
from agent.store.engine import workflow_versions
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.read_models import workflow_documents
from agent.tasks.submission import TooManyStepsError
from agent.triggers import sync
from agent.workflows.compile.compiler import compile_text
from agent.workflows.diagnostics import WorkflowError
from agent.workflows.graph import Graph

routes = RouteRegistry("workflows")

CHECK_SECONDS: Final = 5.0
"""How long the check of a workflow may occupy the processor."""

Name = Annotated[str, Path(max_length=200, examples=["invoice-triage"])]
VersionNumber = Annotated[
    Annotated[int, Field(ge=1, lt=2**31)] | Literal["latest"],
    Path(description="The number, or `latest`.", examples=[2]),
]
_EXAMPLE = """\
name: hello
steps:
  greet: {shell: {argv: [echo, hello], effect: none}}
"""


@routes.route("GET", "/workflows", scope="read", returns=WorkflowList, summary="All workflows")
async def list_workflows(request: Request) -> Response:
    """Return the workflows that can be started, each in its newest version."""
    return answer(
        {"workflows": await context_of(request).read_pool.read(workflow_documents.list_workflows)}
    )


@routes.route(
    "GET",
    "/workflows/{name}",
    scope="read",
    returns=WorkflowDocument,
    refuses={404: "No such workflow"},
    summary="One workflow",
)
async def get_workflow(request: Request, name: Name) -> Response:
    """Return the newest version of a workflow: its source and its compiled graph."""
    document = await _document(context_of(request), name)
    if document["removed_at"] is not None:
        raise NotFoundError(f"the workflow {name!r} was removed; its versions are still there")
    return answer(document)


@routes.route(
    "GET",
    "/workflows/{name}/versions/{version}",
    scope="read",
    returns=WorkflowDocument,
    refuses={404: "No such workflow or version"},
    summary="One version of a workflow",
)
async def get_version(request: Request, name: Name, version: VersionNumber) -> Response:
    """Return a version of a workflow; also of a removed one, whose tasks continue."""
    number = None if version == "latest" else version
    return answer(await _document(context_of(request), name, number))


@routes.route(
    "POST",
    "/workflows",
    scope="admin",
    returns=WorkflowDocument,
    refuses={
        409: "The workflow is defined in a file, or another one takes free text already",
        415: "Neither YAML nor JSON",
    },
    summary="Create or change a workflow",
    responses={201: {"description": "A new version", "model": WorkflowDocument}},
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "A workflow as in a file: YAML, or the same as JSON.",
            "content": {
                "application/yaml": {"schema": {"type": "string"}, "example": _EXAMPLE},
                "application/json": {
                    "schema": {"type": "object"},
                    "example": {"name": "hello", "steps": {"rest": {"wait": "1s"}}},
                },
            },
        }
    },
)
async def put_workflow(request: Request) -> Response:
    """Check a workflow and record it; one equal to the newest version changes nothing.

    A workflow is code: a client that may write one can run anything that the agent can.
    """
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in ("application/json", "application/yaml", "application/x-yaml", "text/yaml"):
        raise unsupported("application/yaml or application/json")
    body = await request.body()
    document, is_new = await context_of(request).command_pool.run(
        lambda: _record(context_of(request), body)
    )
    return answer(document, 201 if is_new else 200)


@routes.route(
    "POST",
    "/validate",
    scope="read",
    returns=Validation,
    summary="Check a workflow",
)
async def validate_workflow(request: Request, body: WorkflowSource) -> Response:
    """Check a workflow, with all its problems at once; nothing is recorded."""
    context, grant = context_of(request), caller(request)
    context.checks.check(grant)
    taken = ExitStack()
    taken.enter_context(context.checks.taken(grant))
    checking = asyncio.ensure_future(context.check_thread.run(lambda: _validate(body.source)))
    # By the check, not by its caller: who disconnects does not stop it.
    checking.add_done_callback(lambda _: taken.close())
    return answer(await asyncio.shield(checking))


@routes.route(
    "DELETE",
    "/workflows/{name}",
    scope="admin",
    status=204,
    refuses={404: "No such workflow", 409: "The workflow is defined in a file"},
    summary="Remove a workflow",
)
async def delete_workflow(request: Request, name: Name) -> Response:
    """Remove a workflow: it can no longer be started. Its tasks continue and its versions stay."""
    await context_of(request).command_pool.run(lambda: _remove(context_of(request), name))
    return Response(status_code=204)


async def _document(context: Context, name: str, number: int | None = None) -> dict[str, Any]:
    try:
        return await context.read_pool.read(
            lambda connection: workflow_documents.workflow_document(connection, name, number)
        )
    except NotFoundError:
        if not context.startup.has_workflows:
            raise context.startup.not_yet(name) from None
        raise


def _validate(source: str) -> dict[str, Any]:
    try:
        # A character that no file can hold is a problem of the text, not of the request.
        content = source.encode(errors="replace")
        graph = compile_text(content, "workflow.yaml", cpu_seconds=CHECK_SECONDS)
    except WorkflowError as error:
        problems = [problem.document() for problem in error.problems]
        return {"valid": False, "workflow": None, "problems": problems}
    return {"valid": True, "workflow": graph.name, "problems": []}


def _record(context: Context, body: bytes) -> tuple[dict[str, Any], bool]:
    graph = compile_text(body, "workflow.yaml")
    steps_per_task = context.settings.engine.steps_per_task
    if len(graph.steps) > steps_per_task:
        raise TooManyStepsError(graph, steps_per_task)
    source = body.decode("utf-8-sig", errors="replace")
    with context.database.connect("writer") as connection:
        with connection.transaction():
            before = workflow_versions.latest(connection, graph.name)
            if before is not None:
                _check_writable(graph.name, before[3])
            if graph.takes_text:
                _check_only_one_takes_text(connection, graph.name)
            now = context.database.clock.now()
            number = workflow_versions.register(
                connection, graph.name, graph.hash, graph.text, source, None, now
            )
            sync.sync_workflow(connection, graph, number, None, now)
            connection.notify()
        with connection.snapshot():
            document = workflow_documents.workflow_document(connection, graph.name)
        return document, before is None or before[0] != number


def _remove(context: Context, name: str) -> None:
    with context.database.connect("writer") as connection, connection.transaction():
        latest = workflow_versions.latest(connection, name)
        if latest is None:
            raise NotFoundError(f"there is no workflow {name!r}")
        _check_writable(name, latest[3])
        now = context.database.clock.now()
        workflow_versions.remove(connection, name, now)
        sync.remove_triggers(connection, name, None, now)


def _check_only_one_takes_text(tx: Connection, name: str) -> None:
    """Refuse a second workflow that free text in chats would start."""
    for record in workflow_versions.latest_versions(tx):
        latest = workflow_versions.latest(tx, record.name)
        if record.name != name and latest and Graph.model_validate_json(latest[1]).takes_text:
            raise RefusedError(
                f"{record.name!r} takes free text in chats already, and one workflow at most may"
            )


def _check_writable(name: str, path: str | None) -> None:
    if path is not None:
        raise Problem(409, "read-only", f"{name!r} is defined in {path}: change it there")
