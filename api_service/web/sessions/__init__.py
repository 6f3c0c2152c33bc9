"""Cookies, CSRF tokens, and the page after a sign-in."""
