"""The servers for HTTP, and the bounds that all of them keep."""
