"""The worker: an asyncio loop that collects outcomes, commits them and starts the steps it claimed.

- `worker`: the loop, the slots, the shutdown. Entry point: `Worker.run`.
- `attempts`: the attempts in flight. `outbox`: what waits for the next commit.
- `notifications`: wake-ups from other processes. `poison_isolation`: a step whose last attempt
  ended its process runs alone.

It may import every other package of `agent.tasks` except `operator`, `read_models` and `checker`.
"""
