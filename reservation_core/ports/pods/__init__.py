"""Users' pods that the enforcement ends."""
