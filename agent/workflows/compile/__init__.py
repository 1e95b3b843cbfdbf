"""From a parsed file to a graph, or to all its problems. Entry points: `compiler.compile_source`, and
`compiler.check_text` for problems only.

`compiler` compiles the workflow, `step_compiler` one step. `models` and `field_types` declare the keys of
the language; `kind_choice` finds a step's kind; `references` checks names in templates; `inputs`,
`triggers`, `fanout` and `output_schema` are about the keys of those names; `schema_errors` words the errors of a
schema. `executor_keys`, `input_keys` and
`watch_sources` declare keys too; `trigger_inputs` checks what triggers give to tasks, `template_hints` explains mistakes
in templates. `json_schema` writes the schema for editors.

To add a key: a field in `models`, its use in `step_compiler` or `compiler`, a field of `graph.Step` or
`graph.Graph`. It imports every other part of
`agent.workflows` but `loader`, `directory` and `draw`.
"""
