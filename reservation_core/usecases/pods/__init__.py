"""Foreign pods on bookings: reports, verdicts and ends."""
