"""The command line: one module a noun, for people by default and for programs with `--json`.

Modules import nothing heavy at the top (typer alone), so that `agent --help` is quick and a small
command loads only what it uses. What goes wrong becomes one message and an exit code (`errors`),
never a traceback.
"""
