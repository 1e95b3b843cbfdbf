"""What people are shown in chats is what is there."""

from typing import Any

from agent.channels import wording

_TURNED = "evil\u202efdp.exe"
_DOCUMENT: dict[str, Any] = {
    "id": "0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a11",
    "task": "0199d2c4-7d5e-7c31-9d0f-3f1f7b6c2a10",
    "kind": "approval",
    "workflow": "paying",
    "step": "pay",
    "status": "denied",
    "message": f"Open {_TURNED}?",
    "expires_at": None,
    "choices": None,
    "schema": None,
    "editable": [],
    "request": {"kind": "shell", "config": {"argv": ["open", _TURNED]}},
    "decision": {
        "by": "7",
        "channel": "slack",
        "comment": _TURNED,
        "value": None,
        "edits": None,
    },
}


def test_nothing_is_shown_in_another_order_than_it_is() -> None:
    """A character that turns the direction of writing is shown as what it is."""
    asked, is_whole = wording.question(_DOCUMENT, 4000)
    assert is_whole
    for text in (asked, wording.ending(_DOCUMENT, 4000)):
        assert "\u202e" not in text
        assert text.count(r"evil\u202efdp.exe") == 2
