"""The command line `gpu-dev` and its typed client. It talks HTTP, and knows only the contracts and texts."""
