"""Bookings, free time, the waitlist and the calendar feed."""
