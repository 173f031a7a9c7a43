"""GPUs, services and clusters."""
