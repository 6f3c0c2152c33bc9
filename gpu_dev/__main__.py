"""`python -m gpu_dev` is `gpu-dev`."""

from gpu_dev.main import main

main()
