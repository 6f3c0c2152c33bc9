"""Bounds on tokens and lists, a role without ownership, sessions in jobs, and costs."""
