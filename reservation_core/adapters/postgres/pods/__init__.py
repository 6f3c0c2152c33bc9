"""Foreign pods on bookings."""
