"""Loops that survive failures, and the consumer of messages."""
