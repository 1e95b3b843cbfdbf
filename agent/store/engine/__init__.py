"""SQL of the engine, for workers and operators.

`begin_tx` is the first round trip of a worker's transaction. `reads` locks and reads tasks and steps,
`writes` writes them. `attempt_reads` is what an attempt starts with. One module each for the other
tables: `task_rows` (single tasks), `call_rows`, `signals`, `approval_rows`, `budget_rows`, `workers`,
`workflow_versions`, `trigger_rows` and `firing_rows`; `lineage` follows children and retries, `outages` records events of stores.

Entry points: `begin_tx.begin`, then the functions of the other modules. They take the transaction first
and never commit. Import `store.db` and `store.artifacts` only.
"""
