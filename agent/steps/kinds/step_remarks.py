"""Remarks about steps and watchers that will fail when they run, found without running anything.

They are advice, not problems: a module, a model or a workflow may still be added before a task runs.
"""

import ipaddress
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from agent.steps.kinds.module_files import module_exists
from agent.steps.spec.configs import METHODS
from agent.workflows.compile.inputs import InputError, check_inputs
from agent.workflows.compile.watch_sources import SOURCES
from agent.workflows.diagnostics import did_you_mean
from agent.workflows.directory import Entry, NamedWorkflows
from agent.workflows.graph import Graph, Step
from agent.workflows.step_code import listed_code
from agent.workflows.templates.templates import has_templates, is_template

_REACHING: Final = ("feed", "url", "calendar", "git", "mail")
"""Sources that connect to an address, which the address policy may refuse."""
_GUARDED: Final = ("http", "https", "git", "imap")

if TYPE_CHECKING:
    from agent.config.settings import Settings


def of_file(entry: Entry, known: NamedWorkflows, settings: "Settings | None") -> list[str]:
    """Return the remarks about a file's steps and watchers; of a file with problems, about steps without any.

    `known` are the workflows beside it. Checks that depend on settings need them.
    """
    lines: list[str] = []
    for step in entry.readable_steps:
        try:
            remarks = list(_about(step, entry, known, settings))
        except Exception as error:
            # Remarks are advice: an error here must not keep a workflow from running.
            remarks = [f"it could not be checked further: {type(error).__name__}: {error}"]
        lines += [f"step {step.name}: {text}" for text in remarks]
    if entry.workflow is not None and settings is not None:
        lines += _about_watchers(entry.workflow.graph, settings)
    return lines


def _about_watchers(graph: Graph, settings: "Settings") -> Iterator[str]:
    """Remark on watchers of addresses that they may not reach."""
    for spec in graph.on.get("watch") or ():
        source = next((name for name in SOURCES if name in spec), "")
        keys = spec.get(source)
        if source in _REACHING and isinstance(keys, dict):
            url = f"imap://{keys.get('host')}" if source == "mail" else str(keys.get("url"))
            if urlsplit(url).scheme in _GUARDED:
                for text in _about_host(url, settings):
                    yield f"watcher {spec.get('id') or source}: {text}"


def _about(
    step: Step, entry: Entry, known: NamedWorkflows, settings: "Settings | None"
) -> Iterator[str]:
    if step.executor is not None and settings is not None:
        problem = executor_problem(step.executor["name"], settings)
        if problem is not None:
            yield problem
    for name, file in listed_code(step, entry.path):
        if file is None:
            yield f"code: there is no file {name!r}"
    match step.kind:
        case "python":
            yield from _about_function(step, entry.path)
        case "workflow":
            yield from _about_child(step, known)
        case "llm" | "agent" if settings is not None:
            yield from _about_model(step, entry, settings)
        case "http":
            yield from _about_addresses(step, settings)


def executor_problem(name: str, settings: "Settings") -> str | None:
    """Return why an executor cannot run a step with this configuration; None if it can."""
    executors = settings.executors
    if name == "job" and not executors.job.command:
        return (
            "executor: job needs a command that launches jobs: set command in [executors.job], as in"
            ' ["agent", "job"]'
        )
    if name == "ray" and find_spec("ray") is None:
        return "executor: ray needs a library: python -m pip install ray"
    if name == "dask":
        if find_spec("distributed") is None:
            return "executor: dask needs a library: python -m pip install distributed"
        if not executors.dask.address:
            return "executor: dask needs the address of a scheduler in [executors.dask]"
    return None


def _about_function(step: Step, path: Path) -> Iterator[str]:
    """Remark on a module or a function that is missing, and on arguments that do not fit."""
    from agent.steps.kinds import function_source

    call, arguments = step.config.get("call"), step.config.get("with", {})
    if not isinstance(call, str) or is_template(call):
        return
    if not module_exists(call, str(path)):
        name = call.partition(":")[0]
        yield f"the module {name!r} is neither beside {path.name} nor installed"
        return
    names = frozenset(arguments) if isinstance(arguments, dict) else None
    problem = function_source.find_problem(call, str(path), names)
    if problem is not None:
        yield problem


def _about_child(step: Step, known: NamedWorkflows) -> Iterator[str]:
    """Remark on a child workflow that is missing or broken, or that would refuse its inputs."""
    name = step.config.get("name")
    if not isinstance(name, str) or is_template(name):
        return
    graph = known.graphs.get(name)
    if graph is None and (broken := known.broken.get(name)) is not None:
        yield f"the file of the workflow {name!r} has problems: {broken}"
        return
    if graph is None:
        hint = did_you_mean(name, [*known.graphs, *known.broken])
        yield f"no workflow file is called {name!r}" + (f"; {hint}" if hint else "")
        return
    inputs = step.config.get("with", {})
    if not isinstance(inputs, dict):
        return
    try:
        check_inputs(graph, inputs, [key for key, value in inputs.items() if has_templates(value)])
    except InputError as error:
        yield from (f"{name}: {problem}" for problem in error.problems)


def _about_model(step: Step, entry: Entry, settings: "Settings") -> Iterator[str]:
    """Remark on a model that the configuration does not have, or that has no price under a limit of money."""
    from agent.models.errors import ModelError
    from agent.models.registry import registry_of

    name = step.config.get("model")
    if isinstance(name, str) and is_template(name):
        return
    registry = registry_of(settings.models, settings.llm, settings.budget)
    try:
        model = registry.get(name)
    except ModelError as error:
        hint = did_you_mean(name, registry.models) if name else None
        yield str(error) + (f"; {hint}" if hint else "")
        return
    graph = None if entry.workflow is None else entry.workflow.graph
    budgets = [step.budget, None if graph is None else graph.budget]
    limits = ["daily_usd in [budget]"] if registry.daily_microusd is not None else []
    limits += ["`budget`" for budget in budgets if budget is not None and budget.get("usd")]
    if limits and model.price is None:
        yield (
            f"{limits[0]} limits money, and model {model.name} has no price, so its calls will be refused: set"
            f" usd_per_million_in and usd_per_million_out in [models.{model.name}] of the configuration"
        )


def _about_addresses(step: Step, settings: "Settings | None") -> Iterator[str]:
    """Remark on addresses that no request can have, or that steps may not reach."""
    reconcile = step.config.get("reconcile")
    parts = [step.config, reconcile if isinstance(reconcile, dict) else {}]
    for url in (part.get(method) for part in parts for method in METHODS):
        if not isinstance(url, str):
            continue
        if not _may_be_web_address(url):
            yield f"{url} will be refused: an address begins with https:// or http://"
        elif settings is not None:
            yield from _about_host(url, settings)


def _may_be_web_address(url: str) -> bool:
    """Whether an address has a scheme of the web, or one that a template may give it."""
    literal, brace, _ = url.partition("{")
    scheme, mark, _ = literal.partition("://")
    if mark:
        return scheme.lower() in ("http", "https")
    return bool(brace) and not {"/", "."} & set(literal)


def _about_host(url: str, settings: "Settings") -> Iterator[str]:
    """Remark on an address that is not public; names are not resolved."""
    host = _host(url)
    address = None if host is None else _address(host)
    if host is None or address is None:
        return
    from agent.steps.http.address_policy import AddressPolicy

    if not AddressPolicy(settings.http.allow_private).allows(host, address):
        yield (
            f"{host} is not a public address and will be refused; to allow it, set"
            f' allow_private = ["{host}"] in [http] of the configuration'
        )


def _host(url: str) -> str | None:
    """Return the host of an address; None where a template makes it."""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return None
    return None if host is None or is_template(host) or "{" in host else host


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    if host == "localhost" or host.endswith(".localhost"):
        return ipaddress.IPv4Address("127.0.0.1")
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
