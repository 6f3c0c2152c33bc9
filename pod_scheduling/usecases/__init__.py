"""Use cases for pods that others make."""
