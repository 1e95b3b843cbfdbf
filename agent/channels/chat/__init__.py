"""What all chats share: which recipients get which notification (`chat`), commands (`commands` parses them
and names the scope each needs, `command_handler` runs them), buttons, pairing and the texts
(`message_texts`). A chat platform adds how messages are sent and received.
"""
