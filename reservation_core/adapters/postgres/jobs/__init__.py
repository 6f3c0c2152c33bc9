"""Jobs and the locks of their pods."""
