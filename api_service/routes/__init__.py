"""The calls, one module a resource."""
