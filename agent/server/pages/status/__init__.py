"""Pages about the agent itself: `spend_page`, `health_page`, `queue_page` (external workers) and `event_page`."""
