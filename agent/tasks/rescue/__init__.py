"""What happens after a worker died, or could not record a result.

- `failure_detector`: decides that a worker is dead. `rescue_steps`: puts its steps back; the one
  function for start-up recovery and for takeover by another worker.
- `orphan_processes`: ends the commands that a dead attempt left running.
- `maintenance`: the periodic pass over other workers, and children whose parent stopped waiting.
- `spilled_results`: results that could not be recorded at exit, kept in a file for the next start.
"""
