"""Adapters to Kubernetes and to the schedulability service."""
