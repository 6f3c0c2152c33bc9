"""Ways into running jobs."""
