"""The functions of expenses.yaml."""

from typing import Any


def pay(to: str, amount: float) -> dict[str, Any]:
    """Pay; here it only says so."""
    print(f"paid {amount} to {to}")
    return {"to": to, "amount": amount}


def tell(paid: dict[str, Any] | None, error: dict[str, Any] | None) -> str:
    """Say how it ended: what was paid, or who said no and why."""
    if paid is not None:
        return f"{paid['to']} got {paid['amount']}"
    return str(error["message"]) if error else "nothing was paid"
