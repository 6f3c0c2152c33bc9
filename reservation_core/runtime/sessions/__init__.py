"""What a process that lets users into jobs keeps of them."""
