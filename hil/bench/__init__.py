"""What is plugged in -> boards and instruments by name: discovery, bench.yaml, locks, flashing."""
