"""The functions of website-watch.yaml."""

import difflib
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any


def compare(url: str, state: str, body: Any) -> dict[str, Any]:
    """Compare a page with what was remembered of it, and remember it again."""
    text = body if isinstance(body, str) else json.dumps(body, indent=1, sort_keys=True)
    path = Path(state).expanduser() if state else _default_path(url)
    known = path.read_text(encoding="utf-8") if path.exists() else None
    written = path.with_suffix(".new")
    written.write_text(text, encoding="utf-8")
    written.replace(path)
    changes = [
        line
        for line in difflib.unified_diff((known or "").splitlines(), text.splitlines(), n=0)
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    changed = known is not None and known != text
    return {"changed": changed, "first_time": known is None, "lines_changed": len(changes)}


def _default_path(url: str) -> Path:
    digest = hashlib.sha256(url.encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"website-watch-{digest}.txt"
