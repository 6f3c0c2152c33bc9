"""The set-up of processes: settings, logging, metrics, the consumer loop, shutdown, wiring."""
