"""The source `python`: a function that returns items, each a dict with a `key`.

The module is found as those of `python` steps are: beside the workflow file first, and loaded again
when it has changed. The function gets the keys under `with`, and the cursor if it has a parameter
`cursor` (None the first time). It returns a list of items, or a tuple of that list and the next cursor;
without one the cursor stays. Of items with the same key the first counts. A coroutine function runs
on the watchers' event loop, any other in a thread. A thread cannot be ended: while a call that ran
out of time has not returned, further polls fail.
"""

import asyncio
import copy
import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from agent.core.ids import content_hash
from agent.steps.attempt import containment
from agent.steps.kinds.python_modules import Function, find
from agent.steps.types.errors import DefiniteFailure, EndAttempt
from agent.store.db import json_values
from agent.triggers.watchers import poll_threads
from agent.triggers.watchers.item_checks import collect, cursor_of, for_people
from agent.triggers.watchers.source import Json, Poll, PollContext, Source, SourceError

_AGENT: Final = Path(containment.__file__).parents[2]
_MAX_TEXT: Final = 1_500
"""The characters of an exception's text that a message keeps."""


def open_source(keys: dict[str, Any]) -> Source:
    """Return the source of a compiled `python` mapping."""
    return PythonSource(keys)


class PythonSource:
    """One call of the function a poll."""

    def __init__(self, keys: dict[str, Any]) -> None:
        self._call: str = keys["call"]
        self._with: dict[str, Json] = keys.get("with") or {}

    async def poll(self, cursor: Json, context: PollContext) -> Poll:
        """Call the function and check what it returns."""
        path = None if context.workflow_path is None else str(context.workflow_path)
        with_hash = content_hash(json_values.encode(self._with, "with"))
        calls = _Calls(f"{path} {self._call} {with_hash}", context)
        if calls.is_running:
            raise SourceError(f"{self._call}: the call of an earlier poll has not returned yet")
        timeout = asyncio.timeout(context.timeout_seconds)
        try:
            async with timeout:
                function = await calls.in_thread(
                    lambda: containment.call(self._call, find, self._call, path)
                )
                return await self._results(function, cursor, context.most_items, calls)
        except SourceError:
            raise
        except (Exception, EndAttempt) as error:
            if timeout.expired():
                text = f"{self._call} did not return within {context.timeout_seconds:g} seconds"
                raise SourceError(text) from None
            raise SourceError(_describe(self._call, error, path)) from None

    async def _results(
        self, function: Function, cursor: Json, most_items: int, calls: "_Calls"
    ) -> Poll:
        call, arguments = self._call, self._arguments(function, cursor)

        def read(returned: Any) -> Poll:
            return _read(call, returned, cursor, most_items)

        poll: Poll
        if function.is_async:
            returned = await calls.in_task(call, function.function, arguments)
            poll = containment.call(call, read, returned)
        else:
            # Read in the same thread: the methods of what it returned may be the user's code.
            poll = await calls.in_thread(
                lambda: containment.call(call, lambda: read(function.function(**arguments)))
            )
        return poll

    def _arguments(self, function: Function, cursor: Json) -> dict[str, Any]:
        if function.takes_context:
            raise SourceError(f"{self._call}: the function of a watcher gets no `ctx`")
        # The function may change what it gets, and a failed poll must not change the cursor.
        arguments = copy.deepcopy(self._with)
        if function.signature is not None and "cursor" in function.signature.parameters:
            if "cursor" in arguments:
                raise SourceError(f"{self._call}: `cursor` under `with` is taken by the watcher")
            arguments["cursor"] = copy.deepcopy(cursor)
        function.check(self._call, frozenset(arguments))
        return arguments


class _Calls:
    """The calls of one watcher's function, of this poll and of earlier ones."""

    def __init__(self, name: str, context: PollContext) -> None:
        self._name = name
        self._abandoned: dict[str, asyncio.Future[Any]] = context.resources.setdefault("python", {})
        self._context = context

    @property
    def is_running(self) -> bool:
        """Whether a call of an earlier poll has not returned."""
        return self._name in self._abandoned

    async def in_thread(self, function: Callable[[], Any]) -> Any:
        """Run a function in a thread; it runs on if the poll is cancelled."""

        def run() -> Any:
            try:
                return function()
            except StopIteration as error:
                # As in a coroutine: no future can hold it.
                raise RuntimeError("the function raised StopIteration") from error

        return await self._wait(poll_threads.start(self._context, run))

    async def in_task(
        self, call: str, function: Callable[..., Any], arguments: dict[str, Any]
    ) -> Any:
        """Run a coroutine function in a task of its own, so that the poll ends even if it does not."""
        task = asyncio.ensure_future(containment.call_async(call, function, **arguments))
        try:
            return await self._wait(task)
        except asyncio.CancelledError:
            task.cancel()
            raise

    async def _wait(self, future: "asyncio.Future[Any]") -> Any:
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            own_task = asyncio.current_task()
            if future.cancelled() and own_task is not None and not own_task.cancelling():
                raise RuntimeError("the function cancelled its own task") from None
            if not future.done():
                self._abandoned[self._name] = future
                future.add_done_callback(self._forget)
            raise

    def _forget(self, future: "asyncio.Future[Any]") -> None:
        if self._abandoned.get(self._name) is future:
            del self._abandoned[self._name]
        if not future.cancelled():
            # Else asyncio would log its exception as never retrieved.
            future.exception()


def _read(call: str, returned: Any, cursor: Json, most_items: int) -> Poll:
    if inspect.iscoroutine(returned):
        returned.close()
    items = returned
    if isinstance(returned, tuple) and len(returned) == 2:
        items = returned[0]
        cursor = cursor_of(returned[1], f"{call}: the cursor")
    if not isinstance(items, list):
        raise SourceError(
            f"{call} returned a value of type {type(returned).__name__}; expected a list of dicts,"
            " each with a `key`, or a tuple of such a list and the next cursor"
        )
    reported = [(f"{call}: item {number}", item) for number, item in enumerate(items, start=1)]
    return Poll(collect(reported, most_items), cursor)


def _describe(call: str, error: BaseException, workflow_path: str | None) -> str:
    """Return the exception's type and text, and the line of the user's file that raised it."""
    raised: BaseException = error
    cause = error.__cause__
    if isinstance(error, containment.StepExitError | DefiniteFailure) or isinstance(
        cause, StopIteration
    ):
        raised = cause or error
    if isinstance(error, DefiniteFailure):
        text = str(error)
    else:
        text = containment.describe_exception(raised)
    if not text.startswith(call):
        text = f"{call}: {text}"
    return f"{for_people(text)[:_MAX_TEXT]} {for_people(_line(raised, workflow_path))}".rstrip()


def _line(error: BaseException, workflow_path: str | None) -> str:
    """Name the last line beside the workflow file that the traceback shows, else the last of all."""
    frames = [
        (Path(frame.filename).absolute(), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if not Path(frame.filename).absolute().is_relative_to(_AGENT)
    ]
    beside = None if workflow_path is None else Path(workflow_path).parent.absolute()
    own = [
        (path, number)
        for path, number in frames
        if beside is not None
        and path.is_relative_to(beside)
        and "site-packages" not in path.relative_to(beside).parts
    ]
    shown = own or frames
    return f"({shown[-1][0].name}, line {shown[-1][1]})" if shown else ""
