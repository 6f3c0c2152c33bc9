"""Preemption, the health of GPUs, files of jobs, and disks."""
