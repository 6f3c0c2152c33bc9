"""Simulations in a child process: they compute for minutes, and the API goes on."""
