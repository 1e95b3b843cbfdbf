"""Pages about the agent itself: spend, health and the event log."""
