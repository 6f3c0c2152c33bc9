"""The planner's statements."""
