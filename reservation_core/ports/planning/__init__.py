"""The planner's reads and writes."""
