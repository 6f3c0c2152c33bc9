"""Users, tokens, proofs and notifications."""
