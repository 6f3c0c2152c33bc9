"""Sign-in, tokens, users and notifications."""
