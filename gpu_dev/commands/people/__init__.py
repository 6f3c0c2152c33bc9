"""`login`, `tokens`, `users` and `notify`."""
