"""The functions of sign-off.yaml."""

from typing import Any


def draft(title: str) -> str:
    """Write a draft."""
    return f"# {title}\n\nAll is well.\n"


def publish(text: str, signature: Any) -> dict[str, Any]:
    """Sign the text with the name in the signal."""
    by = signature.get("by", "unknown") if isinstance(signature, dict) else "unknown"
    return {"text": f"{text}\nSigned by {by}\n", "signed_by": by}
