"""Pages of workflows: `workflow_pages` lists workflows and shows one with its source, its versions, and the form that runs it;
`workflow_files` shows files that cannot be used, `yaml_colours` colours sources.
"""
