"""The cluster of our jobs: their pods, logs and places."""
