"""Queues of external workers: queued work, leases, and dead letters with a button to retry them."""

from collections import Counter
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from agent.core.logs import audit
from agent.server.context import Context, caller, context_of
from agent.server.pages.framework import rendering
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import Form, PageRequest
from agent.server.problems import Problem
from agent.server.requests.route_registry import client_address
from agent.store.db.database import Connection
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.operator import work_commands
from agent.tasks.read_models import work_documents

pages = PageRegistry("queues")

EVERY_SECONDS: Final = 10
"""Leases are extended without events."""
_PAGE: Final = 50
_MOST_LEASES: Final = 50
_MAX_REQUEUED: Final = 200
_MOST_NAMED: Final = 3
"""New tasks that the notice names."""


@pages.page("/queues", "queues.html", every_seconds=EVERY_SECONDS)
def queue_page(connection: Connection, request: PageRequest) -> dict[str, Any]:
    """Return every queue, its leases, and a page of dead letters of the chosen queue and error."""
    queues = work_documents.queues(connection)["queues"]
    chosen = request.query.get("queue") or None
    code = request.query.get("error") or None
    letters = work_documents.dead_letters(
        connection,
        queue=chosen,
        code=code,
        before=request.query.get("cursor") or None,
        most=_PAGE + 1,
    )
    shown = letters[:_PAGE]
    leases = [{**lease, "queue": queue["queue"]} for queue in queues for lease in queue["leases"]]
    return {
        "queues": queues,
        "chosen": chosen,
        "code": code,
        "codes": sorted({letter["error"]["code"] for letter in shown if letter["error"]}),
        "leases": leases[:_MOST_LEASES],
        "hidden_leases": max(0, len(leases) - _MOST_LEASES),
        "letters": shown,
        "first": request.url(cursor=None) if "cursor" in request.query else None,
        "next": request.url(cursor=shown[-1]["id"]) if len(letters) > _PAGE else None,
    }


@pages.action("/queues/requeue", scope="operate")
async def requeue_dead_letters(request: Request, form: Form) -> Response:
    """Put the chosen dead letters back, each as a retry of its task."""
    ids = list(dict.fromkeys(form.get("work", "").split()))
    if not ids or len(ids) > _MAX_REQUEUED:
        raise Problem(422, "invalid", "choose at least one dead letter")
    context = context_of(request)
    who, source = f"page:{caller(request).name}", client_address(request.scope)
    reason = form.get("reason", "").strip() or None
    requeued, refused = await context.command_pool.run(
        lambda: _requeue(context, ids, reason, who, source)
    )
    text = f"{len(requeued)} put back"
    if 0 < len(requeued) <= _MOST_NAMED:
        text += f" as {', '.join(dict.fromkeys(requeued))}"
    text += "." + "".join(f" {count} not: {why}." for why, count in refused.most_common(3))
    back = rendering.back_of(form)
    return rendering.redirect(request, back if back.startswith("/queues?") else "/queues", text)


def _requeue(
    context: Context, ids: list[str], reason: str | None, who: str, source: str
) -> tuple[list[str], Counter[str]]:
    """Return the tasks that were started, and why other dead letters were not put back."""
    requeued, refused = list[str](), Counter[str]()
    for work_id in ids:
        try:
            with audit.recorded(who, source, "requeue", work=work_id):
                result = work_commands.requeue_dead(
                    context.operator, context.database, work_id, None, reason
                )
        except (NotFoundError, RefusedError) as error:
            refused[str(error)] += 1
        else:
            requeued.append(result.task_id)
    return requeued, refused
