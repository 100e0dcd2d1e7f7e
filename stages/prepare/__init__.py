"""Clips or pictures -> features and labels of each split, memory-mapped, with their provenance."""
