"""Experiments and boards -> rows against a baseline, as CSV and JUnit XML."""
