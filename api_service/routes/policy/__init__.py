"""Rules, projects and usage."""
