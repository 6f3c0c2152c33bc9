"""Callers, their rates, and what they may do and see."""
