"""The reservation processor: plans, allocates, creates and deletes pods, and follows their state."""
