"""Where people are told and asked: the terminal, Telegram, webhooks.

**Deliveries** are driven from the event log by a cursor per channel (`deliveries`): a notification is done
with when its channel has taken it, and only then does the cursor move. So each is delivered at least
once, in order, whatever is killed when; one that fails is tried again, later and later, and shows in
the log, as the event `delivery.failed`, and in `agent doctor`.

**Commands** are read in one place (`commands`), which also says which scope each needs: the same
scopes as the HTTP API's. `conversation` carries them out, for every chat alike.

**Who**: in a chat nobody may do anything until paired (`pairing`): by the chat's own unchangeable id,
with a code that somebody confirms on the command line.

**Answers** go through `agent.approvals.answering` like everybody's: the first one counts. Buttons
carry opaque tokens (`buttons`), links a signature (`signing`); neither says anything by itself.
"""
