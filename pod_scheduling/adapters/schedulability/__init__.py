"""The schedulability service over HTTP: may a user use GPUs now?"""
