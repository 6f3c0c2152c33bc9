"""The messages of REST, one module per subject; and those of the queues."""
