"""Templates and expressions: their syntax, what they may name, and a sandbox with a bound on time, size
and nesting. Entry points: `templates.render`, `templates.evaluate`.
"""
