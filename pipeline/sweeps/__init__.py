"""Axes of settings, seeds and experiments -> points, each of them a run, and one table of all their results."""
