"""`agent schema`: the JSON Schema of workflow files."""


def schema() -> None:
    """Print the JSON Schema of workflow files, for editors."""
    import agent.steps.spec.registry  # noqa: F401  (registers the kinds of steps)
    from agent.cli.output.terminal import print_json
    from agent.workflows.compile.json_schema import workflow_schema

    print_json(workflow_schema())
