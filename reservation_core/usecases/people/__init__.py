"""Users, tokens, sign-in, web sessions and notifications."""
