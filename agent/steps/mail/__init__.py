"""Mail: what goes out over SMTP, and the mailbox over IMAP.

`smtp_session` sends one message and knows in which phase it broke: before the last byte of DATA nothing
was accepted, after it only the server knows. `composition` builds the message, `sent_folder` looks for
it and saves it. `imap_connection` is shared with the watcher of mailboxes. Every socket is opened here,
to an address that the policy of the `http` step allows, and certificates are always verified.
"""
