"""`agent watch`: a task as it runs."""

import typer

from agent.cli import session
from agent.cli.options import JsonOption, TaskArgument


def watch(task: TaskArgument, *, as_json: JsonOption = False) -> None:
    """Follow a task until it ends or waits on a person."""
    from agent.cli.commands import run
    from agent.cli.output import follow, task_view, terminal

    with session.agent() as agent:
        task_id = agent.find_task(task)
        if not as_json and agent.task(task_id)["status"] not in follow.ENDED:
            run.tell_if_nobody_runs(agent)
        document = follow.follow(agent, task_id, is_quiet=as_json)
    if as_json:
        terminal.print_json(document)
    else:
        task_view.print_ending(document)
    raise typer.Exit(int(follow.exit_code(document)))
