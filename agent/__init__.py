"""A checkpointed step engine for a personal automation agent.

Imports point downwards in this list; import-linter checks them (`make check`)::

    cli         the command line: commands, clients, output
    daemon      the long-running process: worker, server, channels, workflow files
    bootstrap   the composition root: settings to a database and a worker
    mcp         the MCP server: tools and resources, which are routes of the HTTP API
    server      the HTTP API: routes, tokens, webhooks, event streams, pages
    channels    notifications and questions to people: Telegram, Slack, webhooks
    tool_services  the services behind the tools memory and engine of agents
    recovery    the startup pass, before any loop starts
    restore     a backup in the database's place, with everything in it held
    upgrade     the schema upgrade while workers of earlier versions may run
    overview    running tasks, questions to people and failures, at a glance
    triggers    schedules and watchers: they start tasks by themselves
    approvals   answers, expiry, the approval-wait loop
    tasks       the engine: worker, commit path, rules, rescue, operator, checker
    steps       one attempt of one step, and the kinds of steps
    models      connectors to model providers
    workflows   YAML to a checked, compiled graph; templates
    store       schema, migrations, all SQL, SQLite and PostgreSQL
    telemetry   traces by OpenTelemetry: ids, spans, the exporter
    config      settings and where they are read from
    queue       the client of external workers, for programs outside; needs no other part
    core        clock, ids, state machines, logging, locks, redaction
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.steps.types.errors import Applied, DefiniteFailure

__version__ = "0.1.0"
__all__ = ["Applied", "DefiniteFailure", "__version__"]


def __getattr__(name: str) -> Any:
    """Load what step modules import from here when they ask for it: `import agent` stays cheap."""
    if name in {"Applied", "DefiniteFailure"}:
        from agent.steps.types import errors

        return getattr(errors, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
