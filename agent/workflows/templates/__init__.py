"""Templates and expressions, rendered in a sandbox with bounds on time, size and nesting. Entry points:
`templates.render` and `templates.evaluate`; `expressions` parses, for the compiler.

`plain_syntax` reads the simplest templates without Jinja, `jinja_expressions` all others. `syntax` is the accepted part
of Jinja, `sandbox` the environment, `filters` its filters, `limits` the
bounds, `undefined` the messages about missing names, `to_json` the result. It imports nothing of
`agent`.
"""
