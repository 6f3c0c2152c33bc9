"""Rules, limits and quotas, and what counts for them."""
