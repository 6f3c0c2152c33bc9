"""Ports of sessions: programs, terminals and TCP connections inside pods."""
