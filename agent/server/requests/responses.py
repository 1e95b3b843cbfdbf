"""JSON responses, written from the read models' documents without a second validation."""

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response


def answer(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a document as a JSON response."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return Response(
        text.encode(), status, headers=dict(headers or {}), media_type="application/json"
    )
