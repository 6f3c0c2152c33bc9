"""Reading what people type: durations, times, ids, answers."""
