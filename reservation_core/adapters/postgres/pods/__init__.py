"""Others' pods on bookings."""
