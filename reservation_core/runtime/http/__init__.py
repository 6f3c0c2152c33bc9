"""HTTP servers and their bounds."""
