"""Work that programs outside lease: the rules of `worker` steps, applied in a worker's commit.

- `work_parts`: the claims and calls of external workers, as parts of a commit, and their answers.
- `work_claims`: which claim gets which queued work. `lease_calls`: applies what the holder of a lease requests
  (heartbeat, result, question, effect).
- `work_leases`: rows of work and their leases: offer, grant, end. `work_expiry`: leases whose time is over.

Callers: `agent.tasks.commit.work` for claims and calls, `agent.tasks.rules.settlement` for offers. The imports are
those of `agent.tasks.rules`.
"""
