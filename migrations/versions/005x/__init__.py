"""Preemption, the health of GPUs, files of jobs, disks, and traces of jobs."""
