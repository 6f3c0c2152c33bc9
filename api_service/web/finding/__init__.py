"""The palette: what it finds, and where that is."""
