"""Who somebody is, and what a token is good for."""
