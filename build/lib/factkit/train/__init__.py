"""Training with TRL's trainers: what each algorithm needs beyond its configuration."""
