"""Who calls, how often, what they may do and see."""
