"""Example documents of the operation: budgets, metrics and problems."""

from typing import Final

from agent.server.examples.identities import AT, TASK_ID

BUDGET: Final = {
    "task": TASK_ID,
    "calls": 3,
    "tokens_in": 4100,
    "tokens_out": 380,
    "usd": 0.0218,
    "usd_of_unknown_calls": 0.0,
    "budgets": [
        {
            "step": None,
            "tokens": 4480,
            "tokens_limit": 200000,
            "usd": 0.0218,
            "usd_limit": 0.5,
        }
    ],
}
DAY: Final = {
    "day": AT[:10],
    "tokens": 51200,
    "tokens_limit": None,
    "usd": 0.2473,
    "usd_limit": 5.0,
    "seconds": 412.7,
    "seconds_limit": 3600.0,
}
PROBLEM: Final = {
    "type": "urn:agent:problem:refused",
    "title": "Not allowed in this state",
    "status": 409,
    "detail": "nothing to pause: the task succeeded",
}
METRICS: Final = """\
# HELP agent_tasks Tasks by status.
# TYPE agent_tasks gauge
agent_tasks{status="running"} 3
"""
