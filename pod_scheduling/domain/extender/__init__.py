"""Decisions of the scheduler extender: GPUs and shares in use, quotas by model, claims."""
