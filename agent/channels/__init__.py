"""Channels: how people and programs are notified, and how people in chats answer and run commands.

May import `agent.approvals` and everything below it. Entry point: `supervisor.Channels`, which the
daemon starts; it runs every configured channel in a thread of its own.

**Deliveries** (`delivery_loop`): each channel reads the event log by a cursor of its own. The cursor
moves when the channel has accepted a notification, so each one is delivered at least once and in
order. A failed delivery is retried with backoff; it is logged, emitted as `delivery.failed` and shown
by `agent doctor`.

**Commands** (`chat.commands` parses them, `chat.command_handler` runs them) are the same in every
chat and in `agent chat`.

**Permission**: a chat account may do nothing until it is paired (`chat.pairing`), by the platform's
permanent user id and a code that is confirmed on the command line. `agent.approvals.permission`
decides what a paired account may do.

**Platforms**: `slack` (requests: `slack_api`), `telegram`, `webhook`, and `terminal_inbox` for `agent chat`. Each
implements `channel`, as do `operator_notices` (each address of `operator` in [notify]) and `failure_hook` (the workflow
of `on_failure`); chats also receive (`receive_loop`, paced by `poll_pacer`). `notifications` makes what
they send from events, `secret_ref` reads their secrets, `health_checks` reports their problems.

**Messages** of steps (`messages`) are sent by the worker that runs the step, through the same clients.

**Answers** go through `agent.approvals.answering`: the first one counts. Buttons carry opaque tokens
(`chat.buttons`), links a signature (`link_signing`).

To add a channel: a class with the methods of `channel.Channel`, its settings in
`agent.config.channels`, and a case in `supervisor.open_channel`. A chat platform subclasses
`chat.chat.Chat` instead and implements `post`, `edit`, `max_length` and `receive`.

The text of a question, in Telegram as in every chat, is made by `chat.message_texts.question`; its
buttons by `chat.buttons`. `telegram.telegram` only sends them.
"""
