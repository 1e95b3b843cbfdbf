"""Reads the configuration again while the agent runs, and applies the changes that need no restart.

A file that could not be used at a start is refused as a whole, and the old settings stay in force.
Settings that need a restart (see `agent.config.reloading`) are named, and stay unchanged.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import structlog

from agent.config import file_exposure
from agent.config.discovery import ConfigError
from agent.config.file_exposure import ExposedError
from agent.config.loader import Configuration
from agent.config.reloading import changed_keys, is_reloaded, merged
from agent.config.settings import Settings
from agent.core.clock import Clock, to_iso
from agent.daemon.instance_file import InstanceFile

log = structlog.get_logger(__name__)

Apply = Callable[[Settings, Settings], Awaitable[None]]
"""Takes the old settings and the new ones."""


@dataclass(frozen=True, slots=True)
class ReloadResult:
    """The result of a reload."""

    applied: list[str] = field(default_factory=list)
    needs_restart: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Why the file was refused."""


class SettingsReload:
    """The settings in force of one daemon; one reload runs at a time."""

    def __init__(
        self,
        configuration: Configuration,
        apply: Apply,
        instance_file: InstanceFile | None,
        clock: Clock,
    ) -> None:
        self.settings = configuration.settings
        self._configuration = configuration
        self._apply = apply
        self._instance_file = instance_file
        self._clock = clock
        self._lock = asyncio.Lock()

    async def run(self) -> dict[str, Any]:
        """Reload the settings; return the applied keys, those that need a restart, and the problems."""
        async with self._lock:
            try:
                settings = await asyncio.to_thread(self._read)
            except (ConfigError, ExposedError, ValueError) as error:
                result = ReloadResult(problems=getattr(error, "problems", None) or [str(error)])
                log.error("settings.refused", problems=result.problems)
            else:
                result = await self._take_over(settings)
            document = asdict(result) | {"at": to_iso(self._clock.now())}
            if self._instance_file is not None:
                await asyncio.to_thread(self._instance_file.record_reload, self.settings, document)
            return document

    def _read(self) -> Settings:
        settings = self._configuration.reread().settings
        # As at a start: files that others could have written are not used.
        for line in file_exposure.close_to_others(settings):
            log.warning("files.closed", message=line)
        return settings

    async def _take_over(self, settings: Settings) -> ReloadResult:
        changed = changed_keys(self.settings, settings)
        result = ReloadResult(
            applied=[key for key in changed if is_reloaded(key)],
            needs_restart=[key for key in changed if not is_reloaded(key)],
        )
        if result.applied:
            old, self.settings = self.settings, merged(self.settings, settings)
            await self._apply(old, self.settings)
        log.info("settings.reloaded", applied=result.applied, needs_restart=result.needs_restart)
        return result
