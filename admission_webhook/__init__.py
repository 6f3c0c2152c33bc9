"""Answers the API server's question about pods that people create: may it be, and which cards does it see?"""
