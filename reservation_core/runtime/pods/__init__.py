"""Processes about others' pods: the extender, the map scheduler, the webhook, the end of pods, the node agent."""
