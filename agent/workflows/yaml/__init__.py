"""YAML with line numbers: `source` reads values that know their place, `fast_scanner` is its quick path,
`errors` explains what a parser rejects.
"""
