"""Telegram: `telegram_api` makes the requests of the Bot API, `telegram` is the channel on top.

The texts of questions and decisions are those of all chats: `agent.channels.chat.message_texts`.

Entry point: `telegram.Telegram`. It may import `agent.channels.chat` and what that imports.
"""
