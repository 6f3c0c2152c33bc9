"""The engine and its connections, errors, clock and wake-ups; named SQL; migrating."""
