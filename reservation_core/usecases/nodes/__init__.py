"""The inventory, cordons, fences and maintenance windows."""
