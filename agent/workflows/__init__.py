"""The workflow language: files become checked, immutable graphs.

`yaml` reads a file into values that know their lines. `compile` checks them against the models of the
language and of the step kinds (`kind_registry`), and compiles them into the one format that tasks start
from (`graph`, which also has the retry policy of a step and its delays). Every problem is found in one
pass and names its file, line and key: `diagnostics` formats it, `validation_messages` words what pydantic
reports, and the modules of `compile` word their own checks. Templates stay text until an attempt starts; then they run in a sandbox with
bounds (`templates`). The names in them are checked here.

Parts: `checked_record` (frozen records), `durations`, `file_names`, `patterns` and `schema_cost` (what a schema costs to
check), `step_code` (hashes of the code that steps run).

Entry points: `loader.load` (one file), `directory.Directory` (a directory that is scanned again and
again), `compile.compiler.check_text` (problems only), `templates.templates.render`. `draw` draws a graph.

Nothing in this package uses the database, the network or the clock. It imports only `agent.core`.
"""
