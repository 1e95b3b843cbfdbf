"""Questions to people: a step waits for an answer, and permission to answer is checked.

May import `agent.tasks` and everything below it. Entry points: `answering.answer` and
`answering.defer`, `approval_documents`, `permission`.

**A step asks** by ending its attempt with a question (`agent.steps.attempt.approval_gate`). The
transaction that parks the step creates the row (`agent.tasks.rules.approvals`). The row holds the
complete request and its hash: an answer is valid for exactly that request.

**An answer** (`answering`) locks the task and decides the pending row. What follows for the step is in
the same transaction. Later answers get the decision and its author. `permission` decides who may
answer, and who may run which command, for every surface.

**Expiry and reminders** (`expiry`) come due through the task's own wake time. A loop every five
seconds is the safety net, and serves paused tasks. A step waits for an approval exactly as long as it
is pending, so a restart has nothing to restore.

**Documents** (`approval_documents`) show an approval in the same way on every surface.
"""
