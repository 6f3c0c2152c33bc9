"""Results of use cases as bodies of REST."""
