"""Entering running jobs, SSH keys and certificates, and sharing."""
