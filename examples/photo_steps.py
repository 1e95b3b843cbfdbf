"""The functions of tidy-photos.yaml."""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def discover(folder: str, extensions: list[str]) -> dict[str, Any]:
    """List the photos that lie directly in the folder."""
    place = Path(folder).expanduser()
    if not place.is_dir():
        raise ValueError(f"there is no directory {place}")
    wanted = {extension.lower() for extension in extensions}
    photos = [path.name for path in place.iterdir() if path.suffix.lower() in wanted]
    return {"photos": sorted(photos), "count": len(photos)}


def place(folder: str, photo: str, move: bool) -> dict[str, str]:
    """Move one photo to the folder of its month; doing it twice is the same as once."""
    source = Path(folder).expanduser() / photo
    if not source.exists():
        return {"photo": photo, "result": "gone"}
    moment = datetime.fromtimestamp(source.stat().st_mtime, UTC)
    month = f"{moment:%Y-%m}"
    target = source.parent / month / photo
    if target.exists():
        return {"photo": photo, "month": month, "result": "already there"}
    if not move:
        return {"photo": photo, "month": month, "result": "would move"}
    target.parent.mkdir(exist_ok=True)
    source.rename(target)
    return {"photo": photo, "month": month, "result": "moved"}


def summarise(placed: list[dict[str, str]]) -> dict[str, Any]:
    """Count what became of the photos."""
    return {
        "results": dict(Counter(each["result"] for each in placed)),
        "months": dict(Counter(each.get("month", "unknown") for each in placed)),
    }
