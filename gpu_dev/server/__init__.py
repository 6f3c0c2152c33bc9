"""The way to the server: connection, streams, signing in."""
