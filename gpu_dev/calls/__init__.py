"""REST's calls, by subject."""
