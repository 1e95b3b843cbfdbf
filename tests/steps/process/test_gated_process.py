"""A command that cannot be waited for is not started, and leaves nothing open."""

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.core.files import file_descriptors
from agent.core.thread_bridge import UnboundedThreads
from agent.steps.process import gated_process, processes
from agent.steps.types.errors import OutOfDescriptorsError


class NoThreads(UnboundedThreads):
    """Stands for a process that has reached its limit of threads."""

    def start(self, function: Any) -> Any:
        raise RuntimeError("can't start new thread")


def open_descriptors() -> set[str]:
    """Return what this process has open."""
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_without_a_thread_its_pipes_are_closed_and_its_child_is_reaped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_descriptors: bool
) -> None:
    """Nothing stays open, and the command never began."""
    children: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> Any:
        children.append(popen(*arguments, **options))
        return children[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    if not has_descriptors:
        monkeypatch.setattr(processes, "start_time", lambda _: None)
        monkeypatch.setattr(file_descriptors, "are_available", lambda: False)

    async def spawn() -> None:
        before = open_descriptors()
        with pytest.raises(RuntimeError if has_descriptors else OutOfDescriptorsError):
            gated_process.spawn(["touch", str(tmp_path / "ran")], {}, None, NoThreads())
        assert open_descriptors() == before

    asyncio.run(spawn())
    (child,) = children
    with pytest.raises(ChildProcessError):
        os.waitpid(child.pid, os.WNOHANG)
    assert not (tmp_path / "ran").exists()
