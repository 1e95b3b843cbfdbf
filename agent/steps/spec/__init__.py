"""What a workflow says about steps. Entry point: `registry.KINDS`, the registry of all kinds.

- Keys of kinds: `configs`, `agent_config`, `mail_config` (addresses: `mail_addresses`), `mailbox_config`, `message_config`,
  `worker_config`, `attachment_config` (the key `attach`).
- Questions to people: `questions` (keys, channels, checks of answers), `unknown_question` (the text of the question
  about an unknown effect).
- `output_checks`: checks of outputs. `child_workflows`: which workflows a graph may start.

Checking a workflow imports this package, so it imports neither HTTP clients nor the code of kinds.
"""
