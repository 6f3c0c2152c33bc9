"""Pages of disks."""
