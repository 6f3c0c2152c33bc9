"""Files of jobs."""
