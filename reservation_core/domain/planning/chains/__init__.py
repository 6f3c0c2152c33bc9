"""Slots of jobs that wait for other jobs: each begins where what it waits for ends at the latest."""
