"""The calendar's window, rows and entries."""
