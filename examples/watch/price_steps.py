"""Steps of `price-watch.yaml`."""

from typing import Any


def judge(price: str, previous: str, limit: float) -> dict[str, Any]:
    """Return whether a price is low, and a sentence about it."""
    before = f", before {previous}" if previous else ""
    text = f"The price is {price}{before}"
    return {"price": float(price), "is_low": float(price) <= limit, "text": text}
