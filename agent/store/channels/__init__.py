"""SQL of the channels: delivery cursors, pairings, and the tokens behind buttons."""
