"""Steps of `invoices.yaml`."""

import time
from pathlib import Path
from typing import Any


def place(file: str) -> dict[str, Any]:
    """Return where an invoice belongs: a directory of its year beside the inbox."""
    source = Path(file)
    year = time.strftime("%Y", time.localtime(source.stat().st_mtime))
    directory = source.parent.parent / "invoices" / year
    directory.mkdir(parents=True, exist_ok=True)
    return {
        "source": str(source),
        "target": str(directory / source.name),
        "name": source.name,
        "year": year,
    }
