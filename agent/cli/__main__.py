"""`python -m agent.cli` is the program `agent`."""

from agent.cli import main

main()
