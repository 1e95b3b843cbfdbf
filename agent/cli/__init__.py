"""The command line: one module a noun, for people by default and for programs with `--json`.

Modules import nothing heavy at the top (typer alone), so that `agent --help` is quick and a small
command loads only what it uses. What goes wrong becomes one message and an exit code (`errors`),
never a traceback.
"""


def main() -> None:
    """Run the command line; the entry point of the program `agent`."""
    from agent.cli.program import run

    run()
