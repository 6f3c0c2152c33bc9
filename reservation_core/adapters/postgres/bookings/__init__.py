"""Bookings and the calendar."""
