"""A task in memory: its rows (`rows`), the task whose row this transaction has locked
(`locked_task`), the only functions that write a status (`transitions`), and compiled graphs
(`graph_cache`). Imports nothing else of `agent.tasks`.
"""
