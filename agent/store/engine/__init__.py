"""SQL of the engine: what a transaction reads first (`begin_tx`), `reads`, `writes`, what an attempt
needs (`attempt_reads`), workers, budgets, approvals, workflow versions, and lines of retries.
"""
