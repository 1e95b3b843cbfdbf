"""YAML with line numbers. Entry point: `source.read_source`, which reads values with their lines.
`fast_scanner` makes ruamel.yaml faster, `errors` explains what the parser rejects. It imports
`diagnostics`.
"""
