"""Change, preview and explain the policy; projects and usage."""
