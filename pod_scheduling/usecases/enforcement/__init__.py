"""Hold pods to their owners' bookings."""
