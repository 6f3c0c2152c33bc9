"""Samples of the use of this machine's GPUs: from the driver, or played back from a file."""
