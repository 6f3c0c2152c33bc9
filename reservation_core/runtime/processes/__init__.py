"""What every process does: start, log, stop."""
