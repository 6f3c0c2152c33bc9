"""The database's revisions, and what they are made with."""
