"""Questions to people: what a step waits on until somebody allowed to has answered.

**Question** by a step that ends its attempt with a question (`agent.steps.attempt.approval_gate`); the row is made in the
transaction that parks the step (`agent.tasks.rules.approvals`). It holds what will be done, in full, and
its hash: an answer is good for exactly that.

**Answered** once (`answering`): the task's row is locked, then the pending row is decided, and what
follows happens in the same transaction. Whoever comes later is told what was decided and by whom.
`permission` decides who may answer, and who may do anything else.

**Looked after** (`expiry`): expiry and reminders come due through the task's own wake time; a loop
every five seconds is the safety net, and does the same for tasks that are paused. A step waits on an
approval exactly as long as that is pending, so that a restart has nothing to restore.

**Seen** as one document on every surface (`questions`).
"""
