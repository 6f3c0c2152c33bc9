"""Programs and ports inside jobs, over WebSockets; SSH keys, certificates and shares."""
