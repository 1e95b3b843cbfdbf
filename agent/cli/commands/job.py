"""`agent job`: runs one attempt that an agent has specified; see `agent.steps.executors`."""

import os

from agent.cli import session
from agent.cli.errors import CommandError


def job() -> None:
    """Run one job that an agent has submitted to a cluster.

    The variable TASK_SPEC_PATH holds the address of its specification. Only the command of
    `[executors.job]` needs this.
    """
    from agent import bootstrap
    from agent.core.logs.logging import configure
    from agent.steps.executors.command_launcher import SPEC_VARIABLE

    address = os.environ.get(SPEC_VARIABLE)
    if not address:
        raise CommandError(
            f"{SPEC_VARIABLE} is not set: it holds the address of the job's specification, and the"
            " command of [executors.job] gets it from the agent"
        )
    settings = session.settings()
    configure(settings.log.format, settings.log.level)
    raise SystemExit(bootstrap.run_job(address, settings))
