"""The removal of old tasks, as `agent db prune` does it."""

from dataclasses import asdict
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from agent.core.clock import to_iso
from agent.server.context import context_of
from agent.server.requests.responses import answer
from agent.server.requests.route_registry import RouteRegistry, audit_more
from agent.server.schemas.pruning import PruneDocument, PruneRequest
from agent.store import prune_run
from agent.store.prune_run import PruneReport

MOST_SECONDS: Final = 5.0
"""The time in which one request removes: clients wait for it, and so does an agent that stops."""

routes = RouteRegistry("agent")


@routes.route(
    "POST",
    "/prune",
    scope="admin",
    returns=PruneDocument,
    summary="Remove old tasks that have ended",
)
async def prune_tasks(request: Request, body: PruneRequest | None = None) -> Response:
    """Count the tasks that ended long ago and all that goes with them; with `dry_run` false remove them for good.

    One request removes for a few seconds. Unless `is_complete`, send it again for the rest.
    """
    context, body = context_of(request), body or PruneRequest()
    database = context.database
    days = context.settings.engine.retention_days if body.days is None else body.days
    before = prune_run.instant_before(database, days)

    def prune() -> PruneReport:
        if body.dry_run:
            return prune_run.preview(database, before)
        return prune_run.run(database, before, most_seconds=MOST_SECONDS)

    report = await context.command_pool.run(prune)
    removed = None if body.dry_run else report.counts
    audit_more(request, days=days, dry_run=body.dry_run, removed=removed)
    return answer(
        {
            "dry_run": body.dry_run,
            "days": days,
            "before": to_iso(before),
            "counts": report.counts,
            "kept": None if report.kept is None else asdict(report.kept),
            "is_complete": report.is_complete,
            "bytes_freed": report.bytes_freed,
        }
    )
