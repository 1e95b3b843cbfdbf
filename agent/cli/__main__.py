"""`python -m agent.cli` is the program `agent`."""

from agent.cli.main import main

main()
