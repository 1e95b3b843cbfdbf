"""Metrics and readiness, for operators of the agent.

`metrics` has the names of the metrics and collects them, `host_metrics` adds those of the machine, and `exposition` writes the text that
Prometheus reads. `event_counts` counts events in the database; `readiness` asks it whether it answers. Routes
(`agent.server.routes.health`) call them; of the server they import only `db_pool`.
"""
