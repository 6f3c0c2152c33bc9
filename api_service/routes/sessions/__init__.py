"""Programs and ports inside jobs, over WebSockets."""
