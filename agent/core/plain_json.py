"""The type of plain JSON values."""

from typing import Any

Json = Any
"""A plain JSON value: None, bool, int, float, str, list or dict of these."""
