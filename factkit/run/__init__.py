"""Parameters, run folders, sweeps: what any experiment needs."""
