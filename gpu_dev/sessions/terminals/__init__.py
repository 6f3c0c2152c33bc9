"""This side of a terminal in a job."""
