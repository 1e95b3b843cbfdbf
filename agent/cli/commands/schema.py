"""`agent schema`: the JSON Schema of workflow files."""

from typing import Annotated

from agent.cli import session
from agent.cli.parameters import Option


def schema(
    *,
    install: Annotated[
        bool,
        Option("--install", help="Write it beside the configuration, and say how to use it."),
    ] = False,
) -> None:
    """Print the JSON Schema of workflow files, for editors.

    Editors with the YAML language server (VS Code, Neovim, Helix, Zed, JetBrains) use it to check
    and complete workflow files that begin with the line which `--install` prints.
    """
    from agent.cli import schema_file
    from agent.cli.output import terminal

    if not install:
        print(schema_file.schema_text(), end="")
        return
    settings = session.settings()
    path = settings.base / schema_file.NAME
    path.write_text(schema_file.schema_text(), encoding="utf-8")
    line = schema_file.modeline(path, settings.workflow_directory)
    terminal.print_line(f"wrote {path}; let workflow files begin with\n{line.rstrip()}")
