"""Pages of workflows: what can be started, its source and versions, and the form that runs it."""
