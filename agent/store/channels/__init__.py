"""SQL of the channels: delivery cursors, pairings, and the tokens behind buttons. Each module is one table,
or two that belong together; functions take the transaction first. It imports `store.db` and
`store.engine`.
"""
