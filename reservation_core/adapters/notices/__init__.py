"""Notifications by mail and webhooks, through a guarded network."""
