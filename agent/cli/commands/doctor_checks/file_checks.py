"""The checks of `agent doctor` on files: which users can change them, or read secrets."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.config.settings import Settings


def file_checks(settings: "Settings") -> Iterator[tuple[str, str, str]]:
    """Yield (what, state, message) for everything that is exposed to other users."""
    from agent.config import file_exposure

    try:
        trust = file_exposure.trust_of(settings)
    except ValueError as error:
        yield "files", "error", f"trusted_users or trusted_groups in [agent]: {error}"
        return
    if trust.is_for_everyone:
        yield "files", "warning", "not checked: trusted_users in [agent] trusts every user"
        return
    results = [("files", "warning", remark) for remark in file_exposure.remarks(settings)]
    for weakness in file_exposure.exposed(settings, trust):
        message = f"{weakness.path} {weakness.problem}: {weakness.remedy}"
        results.append(("files", "error", message))
    results += [
        ("files", "warning", f"{path} can be read by other users: chmod 600 {path}")
        for path in file_exposure.readable(settings, trust)
    ]
    results += _secrets(settings)
    results += _environment_file(settings)
    yield from results or [("files", "ok", "only trusted users can change what the agent acts on")]


def _environment_file(settings: "Settings") -> Iterator[tuple[str, str, str]]:
    """Check whether the `.env` file can be used; its values are never shown."""
    from agent.config import file_exposure
    from agent.core.files.environment_file import EnvironmentFile, EnvironmentFileError

    try:
        EnvironmentFile(
            settings.environment_file.absolute(), lambda: file_exposure.trust_of(settings)
        ).values()
    except EnvironmentFileError as error:
        yield "secrets", "error", str(error)


def _secrets(settings: "Settings") -> Iterator[tuple[str, str, str]]:
    """Check the files with secrets that the configuration and the workflows name."""
    from agent.config import file_exposure
    from agent.core.files.file_trust import can_be_read_by_others, weaknesses
    from agent.daemon import workflow_overview
    from agent.steps.attempt.secrets import path_of, referenced_files

    trust = file_exposure.trust_of(settings)
    named = referenced_files(settings.model_dump(mode="json"))
    for entry in workflow_overview.scan(settings):
        if entry.workflow is not None:
            named |= referenced_files(entry.workflow.graph.model_dump())
    for name in sorted(named):
        try:
            path = path_of(name)
        except OSError as error:
            yield "secrets", "warning", f"the file {name} cannot be read: {error.strerror}"
            continue
        for weakness in weaknesses(path, trust):
            message = f"{weakness.path} {weakness.problem}: {weakness.remedy}"
            yield "secrets", "error", f"{path} holds a secret, and {message}"
        try:
            is_open = can_be_read_by_others(path.stat(), trust)
        except OSError:
            continue
        if is_open:
            yield "secrets", "warning", f"{path} can be read by other users: chmod 600 {path}"
