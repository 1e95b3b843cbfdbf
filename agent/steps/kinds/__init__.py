"""The kinds of steps, one module for each: `run(config, context)` takes the checked configuration and a
`StepContext`, and returns an outcome.

To add a kind:

1. Its keys: a model in `agent.steps.spec.configs` (or a module of its own beside it).
2. Its code: a module here with `async def run(config, context) -> Outcome`. An effect goes through
   `context.perform(context.request(…), function)`: that records the intent, replays the recorded
   answer, and applies `on_unknown`. A slow import goes into `async def ready(config, context)`.
3. Its entry: `add(Kind(…))` in `agent.steps.spec.registry`, with its short key, its verbatim keys and
   the keys that may name secrets. The workflow language, `agent schema` and the runner read it there.
4. Its row in the table of kinds in `docs/workflows.md`, and in that of `docs/reliability.md`.

To add a key to the `http` step: `HttpConfig` in `agent.steps.spec.configs` declares it, `_perform` in
`http` here sends it (`agent.steps.http.exchange` builds the request), and `secret_keys` in the registry
lists it if it may name a secret.

`step_remarks` finds steps that will fail, without running them. `python_modules` finds and loads the user's
modules for `python` steps and tools (`module_files`: where they are, `function_source`: what their source shows). `attachments` are the files of `message` and `mail`. Kinds import `attempt`,
`http`, `process`, `spec` and `types`, and not each other.
"""
