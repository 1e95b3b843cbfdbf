"""Finds the source of a watcher by the key of its definition."""

from importlib import import_module
from typing import Any, Final

from agent.triggers.watchers.source import Listener, Source
from agent.workflows.compile.watch_sources import SOURCES

_MODULES: Final = {
    "feed": "feed",
    "url": "url",
    "path": "paths.path",
    "mail": "mailboxes.mail",
    "calendar": "calendars.calendar",
    "git": "git",
    "command": "command",
    "python": "python_function",
}


def source_name(spec: dict[str, Any]) -> str:
    """Return which of the sources a compiled `watch` block names."""
    return next(name for name in SOURCES if name in spec)


def source_of(spec: dict[str, Any]) -> Source:
    """Return the source of a compiled `watch` block, secrets still as references."""
    name = source_name(spec)
    module = import_module(f"agent.triggers.watchers.{_MODULES[name]}")
    source: Source = module.open_source(spec[name])
    return source


def listener_of(spec: dict[str, Any]) -> Listener | None:
    """Return what tells when to poll this source early, if the source has that."""
    name = source_name(spec)
    module = import_module(f"agent.triggers.watchers.{_MODULES[name]}")
    open_listener = getattr(module, "open_listener", None)
    listener: Listener | None = None if open_listener is None else open_listener(spec[name])
    return listener
