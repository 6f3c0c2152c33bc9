"""SSH into running jobs, on a port of its own."""
