"""The life of a job: starts, changes, ends, and observations of its pods."""
