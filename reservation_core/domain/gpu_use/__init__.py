"""The use of GPUs: samples, their roll-ups, and recordings of them."""
