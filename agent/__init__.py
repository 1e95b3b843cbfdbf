"""A checkpointed step engine for a personal automation agent.

Imports point downwards in this list, and import-linter holds them to it::

    cli         typer commands, one module a noun
    daemon      the worker with what keeps it company: lock, signals, workflow files
    starting    a start that waits out what passes
    catalog     workflows where they are kept: files, and versions on record
    app         the composition root: settings to a database and a worker
    server      the HTTP API: the door, the routes, webhooks, streams of events
    channels    where people are told and asked: Telegram, Slack, webhooks
    recovery    the startup pass, before any loop starts
    upgrade     the schema's upgrade while workers of earlier versions may live
    approvals   answering, expiry, the approval-wait loop
    tasks       the engine: claim, settle, advance, turn, operator commands, expansion
    steps       the runner, the context a step sees, one module per kind of step
    workflows   YAML to a checked, compiled graph; templates
    store       tables, the SQL, the dialect differences in one file, migrations
    audit, states, keys, clock, scopes, harmless, config, config_file, exposure, file_trust, inode, lock,
    log, event_loop, redaction, descriptors, log_limit
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
