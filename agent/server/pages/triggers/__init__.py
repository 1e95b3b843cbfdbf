"""Pages of schedules and watchers, and the commands on them: `trigger_pages`."""
