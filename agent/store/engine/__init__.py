"""SQL of the engine, for workers and operators. Entry points: `begin_tx.begin`, then the functions of the other modules.

- `begin_tx` is the first round trip of a worker's transaction. `reads` locks and reads tasks and steps,
  `writes` writes them. `attempt_reads` reads the input of attempts.
- One module for the other tables: `task_rows` (single tasks), `call_rows`, `signals`, `approval_rows`, `budget_rows`,
  `workers`, `workflow_versions`, `state_rows`, `conversation_rows`, `snapshot_rows`.
- Triggers: `trigger_rows` and `firing_rows`. External workers: `work_rows`, with the query for their claims.
- `lineage` follows children and retries, `outages` records events of stores.

They take the transaction first and never commit. Import `store.db` and `store.artifacts` only.
"""
