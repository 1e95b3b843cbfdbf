"""What commands print: tables and JSON (`terminal`), one task (`task_view`), a task as it runs
(`live_view`, `follow`), the conversation of an agent step (`transcript`).
"""
