"""What people type: durations, times, ids, answers."""
