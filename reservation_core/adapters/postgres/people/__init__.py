"""Users, tokens and notifications."""
