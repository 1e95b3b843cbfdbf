"""The configuration: `settings` declares every key with its default, `loader` reads the file and
the environment. `channels` and `models` declare the sections of those names.

It imports nothing of `agent`. Entry point: `loader.load`.
"""
