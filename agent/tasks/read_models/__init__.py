"""Documents for people and programs, built when they are read: tasks, workflows, outputs, spending,
an agent's transcript, and what a step waits for. Nothing here changes the database.
"""
