"""`agent secrets`: the references in use, and where each gets its secret from; never a secret itself."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from agent.cli import session
from agent.cli.options import JsonOption
from agent.cli.parameters import Option

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.core.secret_reference import Reference

_MARKS = {True: ("✓", "green"), False: ("✗", "red"), None: ("·", "")}


@dataclass(frozen=True)
class ReferenceInUse:
    """One reference: where it is used, where its secret comes from, and whether it is there."""

    reference: str
    used_by: list[str]
    resolves_from: str | None
    """Where the secret is, or would be looked for; None if it is nowhere."""
    is_found: bool | None
    """None if that was not checked."""
    problem: str | None


def secrets(
    *,
    check: Annotated[
        bool,
        Option(
            "--check",
            help="Also read the keyring and run the commands; this may ask you to confirm.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List references to secrets, and where each resolves from.

    Values are never shown. Exits with 3 if a reference leads to no secret.
    """
    from agent.cli.errors import Exit
    from agent.cli.output import terminal

    in_use = references_in_use(session.settings(), reads_slow=check)
    if as_json:
        terminal.print_json([asdict(entry) for entry in in_use])
    elif not in_use:
        terminal.print_line("no references to secrets in the configuration or in workflows")
    for entry in () if as_json else in_use:
        mark, style = _MARKS[entry.is_found]
        source = entry.problem or f"from {entry.resolves_from}"
        terminal.print_line(f"{mark} {entry.reference}  {source}", style)
        for user in entry.used_by:
            terminal.print_line(f"    {user}")
    if any(entry.is_found is False for entry in in_use):
        raise SystemExit(int(Exit.REFUSED))


def references_in_use(settings: "Settings", *, reads_slow: bool) -> list[ReferenceInUse]:
    """Return the references of the configuration and of the workflow files, each with its users.

    `reads_slow` also reads the keyring and runs the commands.
    """
    from agent import bootstrap
    from agent.core.secret_reference import parse
    from agent.steps.attempt.secret_sources import sources

    bootstrap.register_secret_sources(settings)
    users: dict[str, list[str]] = {}
    for user, text in _located(settings):
        reference = parse(text)
        assert reference is not None
        if user not in users.setdefault(reference.text, []):
            users[reference.text].append(user)
    known = {text: parse(text) for text in sorted(users)}
    if reads_slow:
        for reference in known.values():
            if reference is not None and reference.is_slow:
                # All at once: each may wait for a person.
                sources.slow.start(reference.source, reference.name)
    return [
        _checked(reference, users[text], settings, reads_slow=reads_slow)
        for text, reference in known.items()
        if reference is not None
    ]


def _located(settings: "Settings") -> Iterator[tuple[str, str]]:
    """Yield each reference with the place that uses it."""
    from agent.core.secret_reference import references, value_at
    from agent.daemon import workflow_overview
    from agent.models.registry import registry_of
    from agent.steps.attempt.prepare import secret_parts

    def found(value: Any, where: str) -> Iterator[tuple[str, str]]:
        for path in references(value):
            yield where + ".".join(map(str, path)), value_at(value, path)

    yield from found(settings.model_dump(mode="json"), "configuration: ")
    models = registry_of(settings.models, settings.llm, settings.budget).models
    for name, model in models.items():
        if model.key is not None and not settings.models[name].key:
            yield f"configuration: models.{name}.key (its default)", model.key
    for entry in workflow_overview.scan(settings):
        if entry.workflow is not None:
            graph = entry.workflow.graph
            yield from found(graph.on, f"workflow {entry.name}: on.")
            for step in graph.steps:
                where = f"workflow {entry.name}, step {step.name}: "
                yield from found(secret_parts(step), where)


def _checked(
    reference: "Reference", users: list[str], settings: "Settings", *, reads_slow: bool
) -> ReferenceInUse:
    from agent.steps.attempt.secrets import Secrets
    from agent.steps.types.errors import DefiniteFailure

    source = _source(reference, settings)
    if (reference.is_slow and not reads_slow) or _is_pipe(reference):
        return ReferenceInUse(reference.text, users, source, None, None)
    try:
        value = Secrets().resolve(reference.text, frozenset({()}))
    except DefiniteFailure as error:
        return ReferenceInUse(reference.text, users, None, False, error.error.message)
    problem = None if str(value).strip() else f"{reference.text} is empty"
    return ReferenceInUse(reference.text, users, source, problem is None, problem)


def _is_pipe(reference: "Reference") -> bool:
    """Whether a read here would consume the value that a step needs."""
    from agent.core.files.file_trust import is_special
    from agent.steps.attempt.secrets import path_of

    try:
        return reference.source == "file" and is_special(path_of(reference.name).stat())
    except (OSError, ValueError):
        return False


def _source(reference: "Reference", settings: "Settings") -> str:
    """Return where a reference gets its secret from, without reading it."""
    match reference.source:
        case "env":
            is_set = reference.name in os.environ
            return "the environment" if is_set else str(settings.environment_file)
        case "file":
            return reference.name
        case "keyring":
            return "the keyring"
        case "exec":
            argv = settings.secrets.exec.get(reference.name)
            return "no command of the configuration" if argv is None else f"the command {argv[0]}"
