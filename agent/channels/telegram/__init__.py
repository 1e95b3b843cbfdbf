"""Telegram: `telegram_api` makes the requests of the Bot API, `telegram` is the channel on top.

Entry point: `telegram.Telegram`. It may import `agent.channels.chat` and what that imports.
"""
