"""Cookies, CSRF tokens, and where to go after a sign-in."""
