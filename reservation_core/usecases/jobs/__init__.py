"""Submit, extend and cancel jobs."""
