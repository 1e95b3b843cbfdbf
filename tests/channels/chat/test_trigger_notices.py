"""Notices about triggers: the command that a text names works for that kind of trigger."""

import pytest

from agent.channels.chat import trigger_notices


@pytest.mark.parametrize(("kind", "command"), [("schedule", "schedules"), ("watch", "watchers")])
def test_a_paused_trigger_is_resumed_by_its_own_command(kind: str, command: str) -> None:
    """`agent schedules resume` refuses a watcher."""
    data = {"trigger": "w:it", "reason": "its last task failed", "kind": kind}
    text = trigger_notices.text_of("schedule.paused", data)
    assert f"`agent {command} resume w:it`" in text
