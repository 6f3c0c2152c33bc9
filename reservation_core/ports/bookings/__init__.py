"""Bookings and what is due in the calendar."""
