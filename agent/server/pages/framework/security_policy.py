"""The content security policies of pages. No other module has any."""

import base64
import hashlib
from typing import Final

_EVERY_PAGE: Final = (
    "default-src 'none'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
DASHBOARD: Final = (
    f"{_EVERY_PAGE}; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self';"
    " manifest-src 'self'"
)
"""For pages with a session: the style sheet, the script and the images of this server."""


def only_style(style: str) -> str:
    """Return the policy of a page that has this inline style, and loads nothing at all."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"{_EVERY_PAGE}; style-src 'sha256-{digest}'"
