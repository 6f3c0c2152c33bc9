"""Ways into a running job, and SSH keys of people."""
