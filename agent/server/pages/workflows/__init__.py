"""Pages of workflows: `workflow_pages` shows what can be started, its source and versions, and the form that runs it;
`workflow_files` shows files that cannot be used, `yaml_colours` colours sources.
"""
