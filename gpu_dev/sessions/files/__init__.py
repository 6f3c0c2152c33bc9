"""Copy files into jobs and back."""
