"""The language: workflow files that become checked, immutable graphs.

A file is scanned into values that know their lines (`source`), checked against the models of the
language (`language`) and of the step kinds (`kinds`), and compiled into the one format that tasks
start from (`graph`). Every problem is found in one pass and names its file, line and key; nothing
that is wrong gets as far as a task. Templates stay text until an attempt starts (`templates`),
where they run in a sandbox with a bound on everything; what they name is checked here.

Nothing in this package touches the database, the network or the clock.
"""
