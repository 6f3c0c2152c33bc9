"""X.509 certificates, by the `cryptography` library."""
