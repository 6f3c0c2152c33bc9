"""Preemption, GPU health, files of jobs, disks, idle jobs that wait again, traces, and shares in bookings."""
