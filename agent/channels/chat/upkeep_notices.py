"""The texts of notices about disk space and backups, as plain text."""

from typing import Final

from agent.channels.chat.message_texts import cut
from agent.core.escape import harmless
from agent.core.files.disk_space import MEGABYTE
from agent.steps.types.outcome import Json

_MAX_REASON: Final = 500


def text_of(event: str, data: dict[str, Json]) -> str:
    """Return the text of a notice."""
    if event.startswith("backup."):
        return harmless(_backup(event, data))
    where = f"{data.get('path')} on {data.get('host')}"
    free = f"{int(data.get('free_bytes') or 0) // MEGABYTE:,} MB"
    if event == "disk.recovered":
        return harmless(f"✓ the disk of {where} has room again: {free} are free")
    if data.get("level") == "critical":
        return harmless(f"✗ the disk of {where} is almost full: {free} are left; tasks stop soon")
    return harmless(f"! the disk of {where} gets full: {free} are left")


def _backup(event: str, data: dict[str, Json]) -> str:
    if event == "backup.recovered":
        return f"✓ backups work again: {data.get('file')}"
    reason = cut(str(data.get("error")), _MAX_REASON)
    return f"✗ the database is not backed up: {reason}"
