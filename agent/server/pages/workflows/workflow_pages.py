"""Workflows: a list, and each with its source, its versions, and a form that runs it."""

import difflib
import json
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from agent.core.escape import harmless_json
from agent.core.search_terms import folded
from agent.server.context import caller, context_of
from agent.server.pages.forms import form_values
from agent.server.pages.framework import rendering
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import Form, PageRequest
from agent.server.pages.framework.sent_forms import key_of
from agent.server.pages.tasks.task_drawings import workflow_graph
from agent.server.pages.workflows.workflow_files import SourceLine, broken_files, source_lines
from agent.store.db.database import Connection
from agent.store.read import workflow_list as rows
from agent.tasks.read_models import workflow_documents
from agent.triggers import documents as trigger_documents
from agent.workflows.directory import Entry
from agent.workflows.step_code import differing

Document = dict[str, Any]

pages = PageRegistry("workflows")

EVERY_SECONDS: Final = 20
"""Files change without events."""
_PAGE: Final = 50
_MOST_VERSIONS: Final = 30
_MOST_TRIGGERS: Final = 20
_MOST_REMARKS: Final = 10
_CONTEXT_LINES: Final = 3
_DIFF_MARKS: Final = {"+": "new", "-": "old", "@": "at"}


@pages.page("/workflows", "workflows.html", every_seconds=EVERY_SECONDS)
def workflow_list(connection: Connection, request: PageRequest) -> Document:
    """Return the workflows that can be started, and the files that cannot be used."""
    search = request.query.get("search", "").strip()
    cursor = request.query.get("cursor", "")
    page = _found(connection, folded(search[:100]), cursor)
    shown = page[:_PAGE]
    return {
        "workflows": shown,
        "remarks": _remarks(request),
        "broken": [] if cursor else broken_files(_files(request)),
        "directory": str(request.context.settings.workflow_directory),
        "search": search,
        "first": request.url(cursor=None) if cursor else None,
        "next": request.url(cursor=shown[-1]["name"]) if len(page) > _PAGE else None,
    }


def _found(connection: Connection, search: str, after: str) -> list[Document]:
    """Return a page of workflows, and one more; a search finds parts of names and descriptions."""
    found: list[Document] = []
    while len(found) <= _PAGE:
        page = rows.latest_page(connection, limit=_PAGE + 1, after=after)
        entries = [_entry(row) for row in page]
        found += [
            entry
            for entry in entries
            if search in folded(f"{entry['name']}\n{entry['description'] or ''}")
        ]
        if len(page) <= _PAGE:
            break
        after = page[-1]["name"]
    return found[: _PAGE + 1]


def _files(request: PageRequest) -> tuple[Entry, ...]:
    context = request.context
    return context.workflow_files.scanned(context.settings.workflow_directory)


def _remarks(request: PageRequest) -> dict[str, list[str]]:
    return request.context.workflow_files.remarks(request.context.settings)


def _entry(row: Document) -> Document:
    graph = json.loads(row["graph"])
    return {
        "name": row["name"],
        "version": row["version"],
        "description": graph.get("description"),
        "file": row["path"],
        "steps": len(graph["steps"]),
        "starts": sorted(graph.get("on", {})),
    }


@pages.page("/workflows/{name}", "workflow.html", every_seconds=EVERY_SECONDS)
def workflow_page(connection: Connection, request: PageRequest) -> Document:
    """Return a version of a workflow: its source, graph, inputs and earlier versions."""
    name = request.params["name"]
    workflow = workflow_documents.workflow_document(connection, name, _number(request, "version"))
    graph = request.context.graphs.get(connection, name, workflow["version"])
    against = _number(request, "against")
    earlier = None
    if against is not None and against != workflow["version"]:
        earlier = workflow_documents.workflow_document(connection, name, against)
    files = broken_files(_files(request))
    is_latest = workflow["version"] == workflow["versions"][0]["version"]
    return {
        "workflow": workflow,
        "is_latest": is_latest,
        "graph": workflow_graph(graph),
        "lines": source_lines(workflow["source"] or ""),
        "broken": [file for file in files if file.path == workflow["file"]],
        "remarks": _remarks(request).get(name, [])[:_MOST_REMARKS] if is_latest else [],
        "members": form_values.input_members(graph, workflow["source"]),
        "has_inputs": bool(graph.inputs),
        "input_text": harmless_json(form_values.defaults(graph), indent=2),
        "versions": workflow["versions"][:_MOST_VERSIONS],
        "earlier": earlier,
        "difference": [] if earlier is None else _difference(earlier, workflow),
        "changed_code": []
        if earlier is None
        else differing(earlier["code"] or {}, workflow["code"] or {}),
        "triggers": trigger_documents.trigger_list(
            connection,
            now=request.context.database.clock.now(),
            workflow=name,
            most=_MOST_TRIGGERS,
        ),
    }


def _number(request: PageRequest, name: str) -> int | None:
    text = request.query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _difference(before: Document, after: Document) -> list[SourceLine]:
    """Return the lines that differ, with those around them."""
    lines = difflib.unified_diff(
        (before["source"] or "").splitlines(),
        (after["source"] or "").splitlines(),
        lineterm="",
        n=_CONTEXT_LINES,
    )
    return [
        SourceLine(line if line[:2] == "@@" else line[1:], _DIFF_MARKS.get(line[:1], ""))
        for line in list(lines)[2:]
    ]


@pages.action("/workflows/{name}/run", scope="operate")
async def run_workflow(request: Request, form: Form) -> Response:
    """Start a task of the newest version with the inputs of a form."""
    name, submitter = request.path_params["name"], context_of(request).task_submitter
    workflow = await submitter.workflow(name)
    try:
        task_id = await submitter.submit(
            workflow,
            form_values.read_inputs(workflow.graph, form),
            trigger={"kind": "page", "by": caller(request).name},
            priority=form.get("priority") or None,
            dedupe_key=key_of(request, form),
        )
    except Exception as error:
        return await rendering.respond_again(
            request, workflow_page, form, error, "Nothing was started: "
        )
    return rendering.redirect(request, f"/tasks/{task_id}", "Started.")
