"""Whether a pod may have GPUs now: what is asked about it, and what is done with the answer."""
