"""What a kind of step declares: its keys (`configs`), its questions to people (`questions`), checks of
its output (`output_checks`), and the registry of all kinds (`registry`).
"""
