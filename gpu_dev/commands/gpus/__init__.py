"""`gpus`, `nodes` and `queue`."""
