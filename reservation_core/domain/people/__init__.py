"""Identities, sign-in, and what a token may do."""
