"""The commit path of a worker: one batch becomes one transaction.

- `batch`: what a transaction carries, and what it reports. `transaction`: the steps of one
  transaction: fence, lock, settle, record, create, claim, write.
- `committer`: what follows a commit and each kind of failure. `pipeline`: the worker's connection,
  identity and the transactions it sent whose COMMIT is not confirmed yet (PostgreSQL).
- `task_cache`: task state that no other process has changed since.
- `attempt_inputs`: everything an attempt may read, loaded after its claim.
- `large_values`: values that go to the artifact store before the transaction.

All of it runs in the database thread. Entry point: `committer`.
"""
