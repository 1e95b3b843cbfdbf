"""SQL of the channels. Each module is one table, or two that belong together; functions take the transaction first.

`cursors` (how far each channel has read), `pairings` (people in chats), `answer_tokens` (behind buttons and links),
`task_origins` (tasks that were started in a chat), `terminal_messages` (for `agent chat`). It imports `store.db`,
`store.engine` and `store.read`.
"""
