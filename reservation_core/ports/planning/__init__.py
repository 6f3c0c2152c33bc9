"""What the planner reads and writes."""
