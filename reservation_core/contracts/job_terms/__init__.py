"""What a job asks for beside GPUs and what it runs."""
