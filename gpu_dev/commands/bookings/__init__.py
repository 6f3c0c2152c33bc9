"""`book`, `avail`, `usage` and `maintenance`."""
