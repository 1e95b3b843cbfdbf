"""The source `mail`: a folder over IMAP. Its cursor is UIDVALIDITY with the highest UID.

`mail` polls, and listens with IDLE. `imap_fetch` reads messages, `mail_message` makes items of them, `mail_document`
parses them in a process of its own. Entry points: `mail.open_source`, `mail.open_listener`. The connection is
`agent.steps.mail.imap_connection`. The imports are those of `agent.triggers.watchers`.
"""
