"""Rules, limits and quotas, and what counts against them."""
