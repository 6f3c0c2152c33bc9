"""Searches over jobs, bookings, nodes and users."""
