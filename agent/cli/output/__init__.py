"""What commands print: tables and JSON (`terminal`), a task (`task_view`), a running task
(`follow`, `live_view`), the calls of a step (`transcript`).

Entry points: `terminal`, `follow.follow`, `task_view`. It may import `agent.cli.client` and what is below.
"""
