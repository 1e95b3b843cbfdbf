"""Messages that steps send to people: the `message` kind's other half.

`messenger.ChannelMessenger` implements `agent.steps.types.messages.Messenger`. It is created by
`agent.bootstrap` and belongs to a worker: it posts through the same clients and configuration as the
channels, and needs neither the daemon nor the process that receives
([decision 22](../../../docs/decisions/0022-a-message-is-sent-from-its-attempt.md)).

A text is Markdown. `document` parses it to blocks of spans; `telegram_html`, `slack_blocks` and
`plain_text` are pure functions that write these for each channel, and `split` cuts a long text. What
is written can neither mention anyone, nor hide characters, nor show another address than a link's own
(`link_targets`).

A sender sends one part to its platform: `slack_sender`, `telegram_sender`, `terminal_sender`, `apprise_sender`.
`failures` says what a failure means: certainly not sent, or unknown. They may import the clients of the platforms, `agent.channels.chat` and what is below.
"""
