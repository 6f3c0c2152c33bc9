"""An SSH server whose sessions are programs and ports in running jobs."""
