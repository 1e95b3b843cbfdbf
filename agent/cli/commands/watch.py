"""`agent watch`: a task as it runs."""

from agent.cli import session
from agent.cli.options import JsonOption, TaskArgument


def watch(task: TaskArgument, *, as_json: JsonOption = False) -> None:
    """Follow a task until it ends or waits for a person."""
    from agent.cli.commands import run
    from agent.cli.output import follow, task_view, terminal

    with session.client() as client:
        task_id = client.find_task(task)
        if not as_json and client.task(task_id)["status"] not in follow.ENDED:
            run.warn_if_no_worker(client)
        with follow.watching(task_id, f"watch {terminal.short(task_id)}"):
            document = follow.follow(client, task_id, is_quiet=as_json)
    if as_json:
        terminal.print_json(document)
    else:
        task_view.print_ending(document)
    raise SystemExit(int(follow.exit_code(document)))
