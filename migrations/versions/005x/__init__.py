"""Preemption, GPU health, files of jobs, disks and their owners, idle jobs that wait again, and traces of jobs."""
