"""Settings, by component and section."""
