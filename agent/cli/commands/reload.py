"""`agent reload`: lets the running agent apply its changed configuration."""

import os
import signal
import time
from typing import TYPE_CHECKING, Any

from agent.cli import invocation, session
from agent.cli.errors import CommandError, Exit
from agent.cli.options import JsonOption

if TYPE_CHECKING:
    from agent.config.settings import Settings
    from agent.daemon.instance_file import Instance

_TIMEOUT_SECONDS = 30.0
_POLL_SECONDS = 0.05


def reload(*, as_json: JsonOption = False) -> None:
    """Let the running agent apply its changed configuration.

    Prints which keys were applied, and which need a restart. A file with a mistake is refused, and
    the agent keeps its settings.
    """
    from agent.cli.output import terminal

    connection = session.remote()
    if connection is not None:
        document = connection.post("reload")
        connection.close()
    else:
        document = _reload_here(session.settings())
    if as_json:
        terminal.print_json(document)
        return
    if document["applied"]:
        terminal.print_line(f"applied: {', '.join(document['applied'])}")
    if document["needs_restart"]:
        terminal.print_line(f"needs a restart: {', '.join(document['needs_restart'])}", "yellow")
        if connection is None:
            program = invocation.program()
            terminal.print_line(f"restart it: {program} stop, then {program} up")
    if not document["applied"] and not document["needs_restart"]:
        terminal.print_line("nothing has changed")


def _reload_here(settings: "Settings") -> dict[str, Any]:
    """Send SIGHUP to the agent of this machine, and wait for its answer."""
    from agent.cli import other_agents
    from agent.daemon.instance_file import running_instance

    before = running_instance(settings.home)
    if before is None:
        raise CommandError(other_agents.no_agent(settings, "starts one"), Exit.REFUSED)
    try:
        os.kill(before.process_id, signal.SIGHUP)
    except PermissionError:
        raise CommandError(
            f"the agent (process {before.process_id}) belongs to another user", Exit.REFUSED
        ) from None
    result = dict(_wait_for_reload(settings, before).last_reload)
    if problems := result.pop("problems"):
        lines = "\n".join(problems)
        raise CommandError(f"{lines}\nthe agent keeps the settings that it has")
    return result


def _wait_for_reload(settings: "Settings", before: "Instance") -> "Instance":
    from agent.daemon.instance_file import running_instance

    give_up = time.monotonic() + _TIMEOUT_SECONDS
    while time.monotonic() < give_up:
        time.sleep(_POLL_SECONDS)
        now = running_instance(settings.home)
        if now is None or now.process_id != before.process_id:
            raise CommandError("the agent has ended instead", Exit.REFUSED)
        if now.reloads > before.reloads:
            return now
    raise CommandError(
        f"the agent (process {before.process_id}) has not answered for {_TIMEOUT_SECONDS:.0f} s",
        Exit.REFUSED,
    )
