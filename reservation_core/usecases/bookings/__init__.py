"""Book, change and cancel; keep what is due in the calendar."""
