"""A job's life: starts, changes, ends, and what is observed of its pods."""
