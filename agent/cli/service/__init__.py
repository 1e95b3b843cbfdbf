"""The agent as a service of the user: a unit of systemd, or a property list of launchd on macOS.

`definition` says what runs, `systemd` and `launchd` write the file and drive the manager. A new manager
is a module with the same functions, and a line in `manager_of`.
"""
