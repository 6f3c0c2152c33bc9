"""Pods in the API: build, read and label them."""
