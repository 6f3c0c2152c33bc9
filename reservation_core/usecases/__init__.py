"""The use cases, one module each: the domain decides, adapters act."""
