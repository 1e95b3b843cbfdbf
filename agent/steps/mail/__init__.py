"""Mail: sending over SMTP, and the mailbox over IMAP.

`smtp_session` sends one message and knows in which phase it broke: before the last byte of DATA nothing
was accepted, after it only the server knows (`smtp_errors`). `composition` builds the message (`html_text` its plain
text), `sent_folder` looks for it and saves it, `message_changes` moves, labels and flags messages. `accounts` finds the account of a step. `server_addresses` resolves and checks the addresses of servers. `imap_connection` is shared with the watcher of mailboxes. Every socket is opened here,
to an address that the policy of the `http` step allows, and certificates are always verified.
"""
