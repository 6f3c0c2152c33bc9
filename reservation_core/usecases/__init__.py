"""What the system does, one module each: decide in the domain, act through ports."""
