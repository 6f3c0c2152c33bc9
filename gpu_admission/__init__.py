"""Answers kube-scheduler and Volcano as their extender: which nodes do, how good each is, and the binding."""
