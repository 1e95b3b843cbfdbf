"""The JSON Schema of workflow files as a file beside the configuration, for editors."""

import json
import os
from pathlib import Path
from typing import Final

NAME: Final = "workflow.schema.json"


def schema_text() -> str:
    """Return the schema as the text of a file."""
    from agent.workflows.compile.json_schema import workflow_schema

    return json.dumps(workflow_schema(), indent=2) + "\n"


def modeline(schema: Path, directory: Path) -> str:
    """Return the first line of a workflow file that leads editors to the schema."""
    # Editors resolve it from the file's own directory.
    relative = os.path.relpath(schema.absolute(), directory.absolute())
    return f"# yaml-language-server: $schema={relative}\n"
