"""The wire of REST, one module a subject; and, apart from it, the messages in the queues."""
