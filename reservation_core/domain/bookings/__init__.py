"""Bookings, series, the waitlist and maintenance windows."""
