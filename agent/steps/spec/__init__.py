"""What a workflow says about steps: the keys of each kind (`configs`, `agent_config`), the keys of
questions to people (`questions`), the checks of outputs (`output_checks`), the text of the question
about an unknown effect (`unknown_question`), and the registry of all kinds (`registry`, entry point:
`KINDS`).

Checking a workflow imports this package, so it imports neither HTTP clients nor the code of kinds.
"""
