"""The way to the Kubernetes API server: requests, retries, connections, credentials, lists and watches."""
