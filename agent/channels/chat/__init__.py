"""The code that all chats share, `agent chat` included. Entry points: `chat.Chat` for a platform,
`command_handler.CommandHandler.reply` for one message.

- `chat` picks the recipients of a notification and handles what they write. `chat_error`: how a request to
  the platform fails.
- `commands` parses commands and declares the scope of each; `command_handler` runs them,
  `trigger_commands` those on schedules and watchers.
- `buttons`: tokens under a question. `pairing`: codes by which strangers become users.
- Texts: `message_texts` (questions, decisions, tasks), `schema_words` (a JSON Schema in words), `task_ends`,
  `trigger_notices`, `upkeep_notices`.

A platform (`agent.channels.slack`, `agent.channels.telegram`) adds how messages are sent and received. It may
import `agent.channels.channel`, `agent.approvals` and what is below.
"""
