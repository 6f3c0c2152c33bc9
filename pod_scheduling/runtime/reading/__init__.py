"""What processes read again and again, and the files that they start from."""
