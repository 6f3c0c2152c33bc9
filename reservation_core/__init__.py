"""Everything the processes share: the domain, the use cases, the ports and their adapters."""
