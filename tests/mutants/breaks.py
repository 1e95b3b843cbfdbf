"""Deliberate breaks of the engine, each a small change of its text: what the suite must notice."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Mutant:
    """One break: in this file, `old`, which occurs once, becomes `new`."""

    name: str
    why: str
    path: str
    old: str
    new: str


MUTANTS: Final = (
    Mutant(
        "no fence",
        "a worker that was declared dead goes on committing turns",
        "agent/store/opening.py",
        "AND turn = :before AND dead = 0",
        "AND :before >= 0",
    ),
    Mutant(
        "late outcomes count",
        "an outcome under an old claim moves the step that somebody else runs",
        "agent/tasks/settlement.py",
        "if step is None or not holds(step, claim, worker_id) or unit.task.status in TASK_ENDED:",
        "if step is None or step.status != StepStatus.RUNNING:",
    ),
    Mutant(
        "effect before intent",
        "an effect begins while its intent is still on its way to the disk",
        "agent/steps/calls.py",
        "await self._services.journal.intend(claimed, intent)",
        '__import__("asyncio").ensure_future(self._services.journal.intend(claimed, intent))',
    ),
    Mutant(
        "unknown is success",
        "what a dead worker left unknown counts as done",
        "agent/tasks/takeover.py",
        "if response is None:\n            others.append",
        "if step.idempotency_key is None:\n            others.append",
    ),
    Mutant(
        "unknown is retried",
        "what may have happened is done again without asking anybody",
        "agent/steps/calls.py",
        'if request.on_unknown in ("ask", "reconcile"):',
        'if request.on_unknown == "reconcile":',
    ),
    Mutant(
        "acting before the time is over",
        "an unknown is decided while the earlier send may still be under way",
        "agent/steps/calls.py",
        "if self._services.clock.now() < call.expires_at and request.is_effect:",
        "if call.expires_at < 0 and request.is_effect:",
    ),
    Mutant(
        "send_by is ignored",
        "a worker that was held up sends long after others have given its call up",
        "agent/steps/calls.py",
        "if call.is_effect and self._is_too_late(call):",
        "if call.is_effect and call.send_by < 0:",
    ),
    Mutant(
        "recorded calls run again",
        "a call with a recorded answer is made once more",
        "agent/steps/calls.py",
        "if call.status == CallStatus.SUCCEEDED:\n                is_inherited",
        "if call.status == CallStatus.SUCCEEDED and not request.is_effect:\n"
        "                is_inherited",
    ),
    Mutant(
        "changed calls are accepted",
        "the answer to one request is given for another",
        "agent/steps/calls.py",
        "            self._check_same(past, action, body_hash)\n",
        "",
    ),
    Mutant(
        "another key after an unknown",
        "the remote cannot tell the repeated request from a new one",
        "agent/steps/calls.py",
        "remote_key=unknown.remote_key\n            if unknown is not None\n            else keys",
        "remote_key=keys.new_id()\n            if unknown is not None\n            else keys",
    ),
    Mutant(
        "one attempt too many",
        "a failing step is tried once more than its policy allows",
        "agent/tasks/settlement.py",
        "if step.attempt >= step.max_attempts and not",
        "if step.attempt > step.max_attempts and not",
    ),
    Mutant(
        "lost attempts are free",
        "a step that kills its worker is tried for ever",
        "agent/tasks/transitions.py",
        '"step.lost", {"reason": reason})\n    step.attempt = step.attempt + 1',
        '"step.lost", {"reason": reason})',
    ),
    Mutant(
        "acting beyond the last attempt",
        "an attempt that may only find out what happened acts",
        "agent/steps/calls.py",
        "        if not self._claimed.may_act:\n            self.end(Failed(exhausted",
        "        if self._claimed.max_attempts < 0:\n            self.end(Failed(exhausted",
    ),
    Mutant(
        "a forgotten decrement",
        "a step waits for ever on a dependency that was skipped",
        "agent/tasks/advance.py",
        "dependent.deps_remaining = dependent.deps_remaining - 1",
        "dependent.deps_remaining = dependent.deps_remaining - (not transitions"
        ".is_skipped_by_failure(step))",
    ),
    Mutant(
        "a place that is never given back",
        "a window fills up with steps that ended long ago",
        "agent/tasks/transitions.py",
        "    if step.placed:\n        step.placed = 0\n"
        "        unit.task.places_taken = unit.task.places_taken - 1",
        "    if step.placed:\n        step.placed = 0",
    ),
    Mutant(
        "windows are ignored",
        "more steps of a task run at once than it allows",
        "agent/tasks/advance.py",
        "return limit is None or unit.task.places_taken < limit",
        "return limit is None or unit.task.places_taken <= limit",
    ),
    Mutant(
        "a forgotten event",
        "a step waits, and the log does not say so",
        "agent/tasks/transitions.py",
        "    step.status = target\n    unit.tell(event, step, data)",
        '    step.status = target\n    if event != "step.waiting":\n'
        "        unit.tell(event, step, data)",
    ),
    Mutant(
        "paused tasks go on",
        "steps of a task that a person paused are claimed",
        "agent/tasks/claiming.py",
        "if unit.task.status != TaskStatus.RUNNING:",
        "if unit.task.status == TaskStatus.PENDING:",
    ),
    Mutant(
        "a look renews the lease",
        "a dead worker's steps stay running for ever",
        "agent/tasks/liveness.py",
        "silent + watched if known == turn else 0.0",
        "watched if known == turn else 0.0",
    ),
    Mutant(
        "the living are declared dead",
        "a worker whose turn has moved since it was seen loses its steps",
        "agent/store/workers.py",
        "WHERE id = :id AND dead = 0 AND turn = :turn",
        "WHERE id = :id AND dead = 0 AND :turn >= 0",
    ),
    Mutant(
        "the dead are not buried",
        "a restarted daemon leaves what its predecessor was running",
        "agent/recovery.py",
        "        if database.is_sqlite:\n            _bury",
        "        if not database.is_sqlite:\n            _bury",
    ),
    Mutant(
        "an unanswered commit counts as landed",
        "claims and outcomes of a turn that never happened are acted on",
        "agent/tasks/delivery.py",
        "if flight.turned is None or self._landed_turn() < flight.number:",
        "if turned is None:",
    ),
    Mutant(
        "any approval will do",
        "a yes to one request lets another one run",
        "agent/steps/gate.py",
        "if approval.request_hash == digest and approval.status in statuses",
        "if approval.status in statuses",
    ),
    Mutant(
        "half a task",
        "an outcome is taken for a late one when its task gets free in the middle of a turn",
        "agent/tasks/turn.py",
        "if task_id not in units and task_id not in task_ids]",
        "if task_id not in units]",
    ),
    Mutant(
        "outcomes go with a failed turn",
        "what was done while the database was away is forgotten",
        "agent/tasks/worker.py",
        "        except StoreError as error:\n            self._outbox.put_back(batch)\n"
        "            await self._pause_after(error)\n",
        "        except StoreError as error:\n            await self._pause_after(error)\n",
    ),
    Mutant(
        "early signals are lost",
        "a step waits for what was sent before it began to wait",
        "agent/tasks/settlement.py",
        '        take_signal(tx, unit, step, on["signal"])\n',
        "        pass\n",
    ),
    Mutant(
        "the silent count as gone",
        "an unknown is decided while a worker that was only stopped may still be sending",
        "agent/tasks/succession.py",
        "_take_over(delivery, owner, is_process_gone=False) for owner in owners",
        "_take_over(delivery, owner, is_process_gone=True) for owner in owners",
    ),
    Mutant(
        "the same key after a failure",
        "the remote answers a new try with the failure that it remembers",
        "agent/steps/calls.py",
        "_place(claimed), action, body_hash, claimed.failures\n",
        "_place(claimed), action, body_hash, 0\n",
    ),
    Mutant(
        "the cancelled are woken",
        "a question that ran out moves a step of a task that has ended",
        "agent/tasks/approvals.py",
        "is_over = unit.task.status in TASK_ENDED",
        "is_over = False",
    ),
    Mutant(
        "anybody may answer",
        "a question is decided by somebody whom it was not put to",
        "agent/approvals/permission.py",
        'if who and channel not in who and f"{channel}:{by}" not in who:',
        "if who and not by:",
    ),
    Mutant(
        "memory outlives others' writes",
        "a worker goes on from what it remembers although another process has changed it",
        "agent/tasks/unit_cache.py",
        "if not (is_next and self._is_kept):",
        "if not self._is_kept:",
    ),
    Mutant(
        "any version will do",
        "on PostgreSQL a worker writes over what somebody else has changed meanwhile",
        "agent/store/opening.py",
        " AND tasks.xmin = r.version::xid",
        " AND r.version IS NOT NULL",
    ),
    Mutant(
        "a step changes behind its task's back",
        "another worker cannot notice that what it remembers of a step has changed",
        "agent/tasks/recording.py",
        "or len(steps) > before",
        "or before < 0",
    ),
    Mutant(
        "what follows a failed turn counts",
        "a turn that was sent behind one that failed is taken for committed",
        "agent/tasks/delivery.py",
        "each.is_dropped = flight.error is not None or each.number > self.turn",
        "each.is_dropped = False",
    ),
    Mutant(
        "nothing is due before the first",
        "what a worker makes due earlier than everything else is not looked at in its time",
        "agent/tasks/unit_cache.py",
        "if wake is not None and wake < self._next_due:",
        "if wake is not None and self._next_due < 0:",
    ),
    Mutant(
        "a retried child begins anew",
        "the retry of a task repeats what the children of the first one did",
        "agent/tasks/reprise.py",
        "    if task.origin_id == task.id:\n",
        "    if task.origin_id:\n",
    ),
    Mutant(
        "another input counts as the same",
        "a child is given what an earlier one did for somebody else",
        "agent/tasks/reprise.py",
        'return bool(graph.name == asked.get("workflow") and json.loads(given) == wanted)',
        'return bool(graph.name == asked.get("workflow"))',
    ),
    Mutant(
        "one unreadable task stops the start",
        "an agent does not start because of one definition that it cannot read",
        "agent/approvals/expiry.py",
        "except (RefusedError, ValueError) as error:",
        "except KeyError as error:",
    ),
    Mutant(
        "a cancellation is tried once",
        "a child goes on for nobody because the database was away for a moment",
        "agent/tasks/succession.py",
        "                log.warning(failure, error=error.message)\n",
        "                log.warning(failure, error=error.message)\n                break\n",
    ),
    Mutant(
        "inherited unknowns are forgotten",
        "a retry repeats what nobody knows the outcome of",
        "agent/tasks/recording.py",
        "        inheritance.inherit_calls(tx, old, heir)\n",
        "        pass\n",
    ),
    Mutant(
        "what is known is asked",
        "a person is asked about an effect whose late word has come",
        "agent/tasks/settlement.py",
        'if "unknown" in on and not queries.is_call_resolved(tx, on["unknown"]):',
        'if "unknown" in on:',
    ),
    Mutant(
        "a command forgets the family",
        "a task whose time a command finds over leaves its children to nobody",
        "agent/tasks/operator.py",
        '        with self.changing(task_id) as (tx, unit):\n            self._check("signal", unit)\n',
        "        with self.changing(task_id) as (tx, unit):\n            self._follow_up = id"
        '\n            self._check("signal", unit)\n',
    ),
    Mutant(
        "acting in a failing task",
        "an effect begins after another step has failed",
        "agent/tasks/turn.py",
        'if unit.task.phase == "failing" and not advance.is_cleanup(unit, step):\n            return False',
        'if unit.task.phase == "":\n            return False',
    ),
    Mutant(
        "an answer after the end counts",
        "a yes that comes after its question has expired lets the step run",
        "agent/approvals/answering.py",
        "if row.expires_at is not None and row.expires_at <= unit.now:",
        "if row.expires_at is not None and row.expires_at < 0:",
    ),
    Mutant(
        "a late word wakes the dead",
        "the word of an effect moves a step of a task that has ended",
        "agent/tasks/recording.py",
        "            if unit.task.status in TASK_ENDED:\n                continue\n",
        "",
    ),
    Mutant(
        "a retry beside a living effect",
        "a task is retried while what it began may still be under way",
        "agent/tasks/operator.py",
        "if alive_until is not None and alive_until > old.now:",
        "if alive_until is not None and alive_until < 0:",
    ),
    Mutant(
        "a failure is tried again after a pause",
        "an attempt that was paused repeats a call that it has seen fail",
        "agent/steps/calls.py",
        "            if call.idempotency_key == key:\n                # This",
        "            if call.idempotency_key is None:\n                # This",
    ),
    Mutant(
        "what was approved is not looked at again",
        "a step runs with edits that nobody has approved",
        "agent/steps/preparation.py",
        "if request_hash(gate.gated_request(kind.name, config)) != found.approved_hash:",
        "if found.approved_hash is None:",
    ),
    Mutant(
        "any child will do",
        "a step that waits for one child takes the end of another for it",
        "agent/tasks/family.py",
        "if step.status == StepStatus.WAITING and child_of(step) == end.task_id:",
        "if step.status == StepStatus.WAITING:",
    ),
    Mutant(
        "intents under an old claim",
        "an attempt that was taken away, or whose task was cancelled, begins an effect",
        "agent/tasks/turn.py",
        "    if step is None or not settlement.holds(step, note.claim, worker_id):\n        return False\n",
        "    if step is None:\n        return False\n",
    ),
    Mutant(
        "clean-up is cut short",
        "what tidies up after a missed deadline has no time to",
        "agent/tasks/advance.py",
        '            task.phase = "cleanup"\n            task.deadline = None',
        '            task.phase = "cleanup"',
    ),
)
