"""Answers the API server's reviews of new pods: may a pod be created, and which cards does it see?"""
