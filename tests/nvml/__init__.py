"""A library in NVML's place, which tests build from C: the binding itself is exercised."""
