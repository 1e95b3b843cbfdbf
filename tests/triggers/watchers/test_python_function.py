"""The source `python`: what a function gets and returns, and that no exception of it escapes."""

import asyncio
import sys
import threading
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

from agent.core.redaction import everywhere
from agent.store.db import json_values
from agent.triggers.watchers.source import SourceError
from tests.support.file_polls import Watching


@pytest.fixture
def watching(tmp_path: Path) -> Any:
    """Return what makes a watcher of the function `poll` in a module beside a workflow file."""
    # As in a daemon, whatever test ran before: it compares values, by their own methods.
    json_values.use_quick_encoder()

    def make(module: str, **given: Any) -> Watching:
        (tmp_path / "own_source.py").write_text(dedent(module))
        keys = {"call": "own_source:poll", "with": given}
        return Watching({"python": keys}, tmp_path / "workflow.yaml")

    return make


def failure(watcher: Watching) -> str:
    """Return the message of a poll that fails."""
    with pytest.raises(SourceError) as failed:
        watcher.poll()
    return str(failed.value)


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_function_returns_items_and_a_cursor(watching: Any, kind: str) -> None:
    """It gets the keys under `with`, and the cursor by name; None the first time."""
    watcher = watching(
        f"""
        {kind} poll(board, cursor):
            return [{{"key": n, "board": board}} for n in range(cursor or 0, 2)], 2
        """,
        board="a",
    )
    assert watcher.poll() == [{"key": 0, "board": "a"}, {"key": 1, "board": "a"}]
    assert watcher.keys == ["0", "1"] and watcher.cursor == 2
    assert watcher.poll() == []


def test_without_a_cursor_of_its_own_the_cursor_stays(watching: Any) -> None:
    """A function need not take one, nor return one; tuples inside of items become lists."""
    watcher = watching("""
        def poll():
            return [{"key": "a", "n": (1, 2)}, {"key": "a", "n": 3}]
    """)
    watcher.cursor = "kept"
    assert watcher.poll() == [{"key": "a", "n": [1, 2]}]
    assert watcher.cursor == "kept"


def test_a_changed_module_is_loaded_again(watching: Any, tmp_path: Path) -> None:
    """As those of `python` steps are; an installed module is found as well."""
    assert watching("def poll(): return [{'key': 1}]").poll() == [{"key": 1}]
    assert watching("def poll(): return [{'key': 'other'}]").poll() == [{"key": "other"}]
    keys = {"call": "no_such_module:poll", "with": {}}
    message = failure(Watching({"python": keys}, tmp_path / "workflow.yaml"))
    assert (
        message
        == "no_such_module:poll: the module 'no_such_module' is neither beside workflow.yaml nor installed"
    )


def test_what_the_function_changes_is_its_own(watching: Any) -> None:
    """A poll that fails leaves the cursor and the definition as they are."""
    watcher = watching(
        """
        def poll(given, cursor):
            given.append(1)
            cursor["n"] = 2
            raise ValueError("no")
        """,
        given=[],
    )
    watcher.cursor = {"n": 1}
    failure(watcher)
    assert watcher.cursor == {"n": 1} and watcher.spec["python"]["with"] == {"given": []}


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize(
    ("raised", "shown"),
    [
        ("ValueError('bad \\udcff\\0 token')", "ValueError: bad "),
        ("SystemExit(3)", "SystemExit: 3"),
        ("KeyboardInterrupt()", "KeyboardInterrupt"),
        ("GeneratorExit()", "GeneratorExit"),
        ("StopIteration(1)", "StopIteration"),
        ("asyncio.CancelledError()", "CancelledError"),
        ("TimeoutError('remote')", "TimeoutError: remote"),
        ("EndAttempt(None)", "EndAttempt"),
        ("Odd()", "Odd (its __str__ raised SystemExit)"),
    ],
)
def test_every_exception_is_an_error_of_the_poll(
    watching: Any, kind: str, raised: str, shown: str
) -> None:
    """With its type, its text and the line of the user's file; the loop goes on."""
    watcher = watching(f"""
        import asyncio
        from agent.steps.types.errors import EndAttempt
        class Odd(Exception):
            def __str__(self):
                raise SystemExit
        def deeper():
            raise {raised}
        {kind} poll():
            deeper()
    """)
    message = failure(watcher)
    assert shown in message
    message.encode()
    assert "\0" not in message
    assert message.endswith("(own_source.py, line 8)")


def test_a_long_text_keeps_the_line(watching: Any) -> None:
    """The text is cut, the line is not."""
    message = failure(watching("def poll(): raise ValueError('x' * 100_000)"))
    assert len(message) < 2000 and message.endswith("(own_source.py, line 1)")


def test_an_exception_in_a_library_names_the_line_that_called_it(watching: Any) -> None:
    """The user's file is where the user looks."""
    message = failure(watching("import json\n\ndef poll():\n    json.loads('{')"))
    assert "JSONDecodeError" in message and message.endswith("(own_source.py, line 4)")


@pytest.mark.parametrize(
    ("module", "shown"),
    [
        (
            "raise SystemExit(3)",
            "own_source.py cannot be loaded: SystemExit: 3 (own_source.py, line 1)",
        ),
        ("def poll(: pass", "own_source.py cannot be loaded: SyntaxError"),
        ("x = 1", "there is no function 'poll'"),
        ("def poll(board): return []", "does not accept the keys under with"),
        ("def poll(ctx): return []", "gets no `ctx`"),
        ("def poll(): return None", "returned a value of type NoneType; expected a list of dicts"),
        ("def poll(): return [{'key': 1}], 2, 3", "returned a value of type tuple"),
        ("def poll(): yield {'key': 1}", "returned a value of type generator"),
        ("async def made(): pass\ndef poll(): return made()", "returned a value of type coroutine"),
        ("def poll(): return [1]", "own_source:poll: item 1: expected an object"),
        ("def poll(): return [{'key': 1}, {}]", "own_source:poll: item 2: `key` must be"),
        (
            "def poll(): return [{'key': 1, 'at': {1}}]",
            "item 1.at: a value of type set is not JSON",
        ),
        ("def poll(): return [{'key': float('nan')}]", "item 1.key: nan is not a JSON number"),
        ("def poll(): return [{'key': 1, 2: 3}]", "the key 2 is not a string"),
        ("def poll(): return [], object()", "the cursor: a value of type object is not JSON"),
        ("def poll(): return [], 'x' * 100_000", "the cursor: a cursor has 100002 bytes"),
        ("def poll(): return [{'key': n} for n in range(100_001)]", "100001 items in one poll"),
        (
            "class Odd(dict):\n    def __eq__(self, other): raise SystemExit\n"
            "def poll(): return [{'key': 1, 'n': Odd()}]",
            "SystemExit",
        ),
    ],
)
def test_what_is_no_list_of_items_is_an_error(watching: Any, module: str, shown: str) -> None:
    """Which names the module, the function or the item."""
    assert shown in failure(watching(module))


def test_with_cannot_name_a_cursor(watching: Any) -> None:
    """It would be taken for the watcher's own."""
    assert "`cursor` under `with`" in failure(watching("def poll(cursor): return []", cursor=1))


def test_secrets_stay_out_of_items_and_messages(watching: Any) -> None:
    """What was read by reference anywhere in this process is redacted."""
    everywhere.hide("hunter2-of-the-watcher")
    watcher = watching("def poll(): return [{'key': 1, 'n': 'hunter2-of-the-watcher'}]")
    assert watcher.poll() == [{"key": 1, "n": "[redacted]"}]
    assert "hunter2" not in failure(
        watching("def poll(): raise ValueError('hunter2-of-the-watcher')")
    )


class Gate(ModuleType):
    """A module through which a test holds a function and counts its calls."""

    def __init__(self) -> None:
        super().__init__("own_gate")
        self.calls = 0
        self.is_open = threading.Event()


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Return a gate that modules can import."""
    made = Gate()
    monkeypatch.setitem(sys.modules, "own_gate", made)
    return made


@pytest.mark.parametrize(
    "module",
    [
        """
        import own_gate
        def poll():
            own_gate.calls += 1
            own_gate.is_open.wait(20)
            raise SystemExit
        """,
        """
        import asyncio, own_gate
        async def poll():
            own_gate.calls += 1
            while not own_gate.is_open.is_set():
                try:
                    await asyncio.sleep(0.01)
                except asyncio.CancelledError:
                    pass
            raise SystemExit
        """,
    ],
    ids=["thread", "coroutine"],
)
def test_a_call_that_does_not_return_is_not_doubled(watching: Any, gate: Gate, module: str) -> None:
    """The poll ends in time, and the watcher fails until the call has returned."""
    watcher = watching(module)

    async def story() -> None:
        watcher.timeout_seconds = 0.2
        with pytest.raises(SourceError, match=r"did not return within 0\.2 seconds"):
            await watcher.poll_once()
        with pytest.raises(SourceError, match="has not returned yet"):
            await watcher.poll_once()
        assert gate.calls == 1
        (running,) = watcher.resources["python"].values()
        gate.is_open.set()
        await asyncio.wait({running})
        watcher.timeout_seconds = 20.0
        with pytest.raises(SourceError, match="SystemExit"):
            await watcher.poll_once()
        assert gate.calls == 2

    asyncio.run(story())


def test_a_function_that_cancels_its_task_fails_its_poll_only(watching: Any) -> None:
    """The poll is not cancelled: that would look as if the daemon had ended it."""
    watcher = watching("""
        import asyncio
        async def poll():
            asyncio.current_task().cancel()
            await asyncio.sleep(0)
    """)
    assert "the function cancelled its own task" in failure(watcher)


def test_two_watchers_of_one_function_poll_at_the_same_time(watching: Any, gate: Gate) -> None:
    """Only a call that outlived its poll stands in the way of others."""
    watcher = watching("""
        import own_gate
        def poll():
            own_gate.calls += 1
            own_gate.is_open.wait(20)
            return [{"key": 1}]
    """)

    async def story() -> None:
        polls = [asyncio.ensure_future(watcher.poll_once()) for _ in range(2)]
        async with asyncio.timeout(20):
            # The calls are counted in threads.
            while gate.calls < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        gate.is_open.set()
        assert await asyncio.gather(*polls) == [[{"key": 1}]] * 2

    asyncio.run(story())


def test_a_timeout_cancels_a_coroutine(watching: Any, gate: Gate) -> None:
    """It may clean up."""
    watcher = watching("""
        import asyncio, own_gate
        async def poll():
            try:
                await asyncio.sleep(600)
            finally:
                own_gate.is_open.set()
    """)
    watcher.timeout_seconds = 0.1

    async def story() -> None:
        # Before the loop ends, which would cancel it as well.
        async with asyncio.timeout(30):
            has_cleaned_up = False
            while not has_cleaned_up:
                with pytest.raises(SourceError, match="did not return within"):
                    await watcher.poll_once()
                # On a busy machine the time may be over before the coroutine has begun.
                has_cleaned_up = await asyncio.to_thread(gate.is_open.wait, 1)

    asyncio.run(story())
