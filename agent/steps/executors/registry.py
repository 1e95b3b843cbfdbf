"""The executors by name. To add one: a module here, its keys in `workflows.compile.executor_keys`, its
section in `config.executors`, and a case in `Executors.open`. The conformance tests run over each."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from agent.config.executors import ExecutorSettings
from agent.steps.attempt.services import Execution, Services
from agent.steps.executors.process import PythonExecution, ShellExecution
from agent.steps.types.outcome import Json

if TYPE_CHECKING:
    from agent.store.artifacts.blobs import BlobStores

LOCAL = "local"


class Executors:
    """What runs the code of a worker's steps."""

    def __init__(
        self,
        default: str,
        settings: ExecutorSettings,
        jobs_url: str,
        open_stores: "Callable[[], BlobStores]",
    ) -> None:
        self._default = default
        self._settings = settings
        self._jobs_url = jobs_url
        self._open_stores = open_stores

    def open(
        self, kind: str, executor: Mapping[str, Json] | None, services: Services
    ) -> Execution | None:
        """Return what runs an attempt; None where the kind itself does, in this process."""
        options: dict[str, Any] = dict(executor or {"name": self._default})
        name = options.pop("name")
        match name:
            case "process" if kind == "python":
                return PythonExecution(self._settings.process, options, services)
            case "process":
                return ShellExecution(self._settings.process, options)
        return None
