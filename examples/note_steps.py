"""The function of morning.yaml."""

from typing import Any


def write(greeting: Any, disks: Any, statuses: list[str]) -> str:
    """Write the morning's note from what there is."""
    lines = [greeting["text"] if greeting else "No greeting today."]
    if disks:
        full = disks["full"]
        lines.append(f"Nearly full: {', '.join(full)}" if full else "No disk is nearly full.")
    lines.append(f"({', '.join(statuses)})")
    return "\n".join(lines)
