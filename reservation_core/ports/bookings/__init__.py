"""Bookings, and the due work of the calendar."""
