"""Pods that users create: placed by maps and the extender, held to bookings. Knows no jobs and no database."""
