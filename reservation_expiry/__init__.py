"""The reservation expiry: warns, ends and cleans up what is due. One run, then it ends."""
