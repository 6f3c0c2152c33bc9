"""Notifications: their kinds, and what they say."""
