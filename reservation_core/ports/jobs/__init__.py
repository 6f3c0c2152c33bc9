"""Jobs, their logs, and unknown pods."""
