"""Telegram: `telegram_api` makes the requests of the Bot API, `telegram` is the channel on top."""
