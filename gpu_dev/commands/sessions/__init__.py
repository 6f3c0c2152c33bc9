"""Commands that enter running jobs."""
