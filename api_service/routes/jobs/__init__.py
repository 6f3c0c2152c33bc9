"""Jobs, their events, logs and specs."""
