"""Who enters a running job, how, and for how long."""
