"""Preemption, GPU health, files of jobs, disks, idle jobs wait again, traces, shares in bookings, no GPUs."""
