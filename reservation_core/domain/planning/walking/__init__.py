"""The walk through jobs with a slot, which looks for earlier ones."""
