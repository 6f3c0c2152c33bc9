"""The way to the API server: requests, connections, credentials, lists and watches."""
