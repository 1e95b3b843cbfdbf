"""The kinds of steps, one module each. A kind takes its checked configuration and a `StepContext`, and
returns an outcome. `agent.steps.spec.registry` lists them; `python_modules` loads user modules.
"""
