"""From a parsed file to a graph: `compiler` and `step_compiler`, with the models of the language
(`models`, `field_types`), references between steps, inputs, triggers, fan-out and output schemas.
`json_schema` writes the schema for editors. Entry point: `compiler.compile_source`.
"""
