"""A job's page: its life, its log, its prospects."""
