"""Use cases for pods that users create."""
