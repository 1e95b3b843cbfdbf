"""Pages about the agent itself: spend, health, queues and the event log."""
