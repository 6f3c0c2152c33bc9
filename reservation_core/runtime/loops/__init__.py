"""Loops that outlive failures, and the consumer of messages."""
