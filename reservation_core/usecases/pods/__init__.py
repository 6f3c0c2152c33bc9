"""Others' pods on bookings: reported, judged and ended."""
