"""What all chats share, `agent chat` included.

`chat` picks the recipients of a notification and handles what they write. `commands` parses commands
and declares the scope of each; `command_handler` runs them. `buttons` and `pairing` hold tokens and
codes. `message_texts` makes every text that a chat sends. A platform (`agent.channels.slack`,
`agent.channels.telegram`) adds how messages are sent and received.

Entry points: `chat.Chat` for a platform, `command_handler.CommandHandler.reply` for one message. It may
import `agent.channels.channel`, `agent.approvals` and what is below.
"""
