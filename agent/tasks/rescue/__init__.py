"""What happens after a worker died, or could not record a result.

- `failure_detector`: decides that a worker is dead, after `lease_seconds` without a heartbeat (its default is in
  `agent.config.execution`). The lease of an external worker is the key `lease` of its step.
- `rescue_steps`: puts the steps of dead workers back to pending. `take_over` is the one function for it;
  startup recovery (`agent.recovery`), running workers and a worker that shuts down all use it.
- `orphan_processes`: ends the processes that lost attempts left running.
- `peer_takeover`: the periodic pass of a running worker over the others; cancels abandoned children.
- `spilled_results`: results that a worker could not record before it ended, kept in a file until the
  next start.

Entry points: `peer_takeover.watch` for running workers, `agent.recovery.recover` for a start. It may
import `commit`, `operator`, `rules` and `state`, and not `worker`.
"""
