"""Preemption, the health of GPUs, files of jobs, disks, idle jobs that wait again, and traces of jobs."""
