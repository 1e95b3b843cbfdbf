"""Log lines: `logging` and `log_limit` set structlog up, `console_log` writes for terminals, `tracebacks` shows the
frames of a user's own code, `audit` is the log of operator commands.
"""
