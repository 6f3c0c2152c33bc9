"""Pages of figures: what was used, and what other terms would have done."""
