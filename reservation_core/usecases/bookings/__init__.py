"""Book, change and cancel; apply due changes."""
