"""What operators of the agent watch: metrics, and whether it is ready.

`metrics` collects them, `host_metrics` adds those of the machine, and `exposition` writes the text that
Prometheus reads. `event_counts` counts events in the database; `readiness` asks it whether it answers.
"""
