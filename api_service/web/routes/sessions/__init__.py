"""Ways into jobs from pages: terminals and apps."""
