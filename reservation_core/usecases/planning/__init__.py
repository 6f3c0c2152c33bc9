"""The planner, and the quotas that have the last word."""
