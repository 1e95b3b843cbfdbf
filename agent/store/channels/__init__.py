"""SQL of the channels: delivery cursors, pairings, and the tokens behind buttons. Each module is one table,
or two that belong together; functions take the transaction first. Entry points: `cursors`,
`pairings`, `answer_tokens`. It imports `store.db`, `store.engine` and `store.read`.
"""
