"""One attempt of one step: the runner, the context that a step's code sees, and the kinds of steps.

Nothing here reads or writes the database. An attempt gets its data as an `AttemptInput`, records what
must be durable through the `Journal`, and ends with an outcome, a value that the engine applies.
Invariants: an effect begins only after its intent is durable, and an effect whose result was never
recorded is unknown, never assumed to have worked.

Entry point: `attempt.runner.run(attempt_input, signals, services)`, which the worker calls
(`agent.tasks.worker.attempts`). Imports point downwards; nothing here imports `agent.tasks`::

    agent     the `agent` kind: a model that uses tools, turn by turn
    executors where the code of `python` and `shell` steps runs: processes, jobs, clusters
    kinds     the other kinds, one module each
    mail      SMTP and IMAP: messages, sending, the folder of sent mail
    http      requests: client, address policy, redirects, responses
    process   commands: gate, process groups, environment, output
    attempt   one attempt from its claim to its outcome; journaled calls
    spec      the definition of steps: the keys of each kind, and the registry of kinds
    errors    the former import path of `DefiniteFailure` and `Applied`
    types     the values of an attempt: input, outcome, calls, errors
"""
