"""Users' identities, and what a token is good for."""
