"""What the scheduler extender decides: GPUs and shares in use, quotas by model, claims."""
