"""What a process needs around its work: settings, logging, metrics, the consumer loop, shutdown, wiring."""
