"""Preemption, the health of GPUs, and files of jobs."""
