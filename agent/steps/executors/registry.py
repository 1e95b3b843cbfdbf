"""The executors by name. To add one: a module here, its keys in `workflows.compile.executor_keys`, its
section in `config.executors`, and a case in `Executors.open`. The conformance tests run over each.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from agent.config.executors import ExecutorSettings
from agent.steps.attempt.services import Execution, Services
from agent.steps.executors.command_launcher import CommandLauncher
from agent.steps.executors.dask import DaskLauncher
from agent.steps.executors.launcher import Launcher
from agent.steps.executors.process import PythonExecution, ShellExecution
from agent.steps.executors.ray import RayLauncher
from agent.steps.executors.remote import JobStore, RemoteExecution
from agent.steps.types.outcome import Json

if TYPE_CHECKING:
    from agent.store.artifacts.blobs import BlobStores


class Executors:
    """What runs the code of a worker's steps."""

    def __init__(
        self,
        default: str,
        settings: ExecutorSettings,
        jobs_url: str,
        open_stores: "Callable[[], BlobStores]",
        job_program: str,
    ) -> None:
        """Take the executor of steps without one, and where the objects of jobs are.

        `job_program` names the function that runs a job in a worker of a cluster, as `module:function`.
        """
        self._default = default
        self._settings = settings
        self._jobs_url = jobs_url
        self._open_stores = open_stores
        self._job_program = job_program
        self._stores: BlobStores | None = None
        self._launchers: dict[str, Launcher] = {}

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
            case "job" | "ray" | "dask":
                launcher = self._launcher(name, services)
                return RemoteExecution(
                    name, kind, options, launcher, self._settings.job, self._store()
                )
        return None

    def _launcher(self, name: str, services: Services) -> Launcher:
        """Return the launcher of this name; it is made at its first use."""
        if name not in self._launchers:
            self._launchers[name] = self._new_launcher(name, services)
        return self._launchers[name]

    def _new_launcher(self, name: str, services: Services) -> Launcher:
        settings = self._settings
        if name == "job":
            return CommandLauncher(settings.job, services.limits.directory, services.threads)
        cluster = RayLauncher if name == "ray" else DaskLauncher
        launcher = cluster(getattr(settings, name), self._job_program)
        # Its connection is closed with the worker.
        services.resources[f"{name} {id(launcher)}"] = launcher
        return launcher

    def _store(self) -> JobStore:
        if self._stores is None:
            self._stores = self._open_stores()
        return JobStore(self._jobs_url, self._stores)
