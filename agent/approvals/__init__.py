"""Questions to people: a step waits until an allowed person has answered.

- A step **asks** by ending its attempt with a question (`agent.steps.attempt.approval_gate`). The
  transaction that parks the step inserts the row (`agent.tasks.rules.approvals`). The row holds the
  whole request and its hash: an answer is valid for exactly that request.
- `answering`: **answers** a question once. It locks the task, decides the pending row, and lets the
  step go on in the same transaction. A later answer gets an error that says what was decided and by
  whom. `permission` decides who may answer.
- `expiry`: **expires** questions and sends reminders. A running task's wake time does both on time; a
  loop is the safety net, and serves paused tasks. A step waits on an approval exactly as long as the
  row is pending, so a restart has nothing to restore.
- `approval_documents`: **shows** an approval as one document for every surface.

Entry points: `answering.answer`, `resolve`, `resume_work`, `defer`, and `expiry.check_due`. It may import `agent.tasks`
and below; the server, the channels and the command line import it.
"""
