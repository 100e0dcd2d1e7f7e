"""Artifacts -> artifacts: the steps, one folder each, the rooms they share, and the tools that are no step."""
