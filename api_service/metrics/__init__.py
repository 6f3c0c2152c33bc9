"""The API's metrics."""
