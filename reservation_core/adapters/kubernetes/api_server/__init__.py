"""Requests to the Kubernetes API server: retries, connections, credentials, lists and watches."""
