"""Artifacts of a run -> CSV, figures, report.html and the table on the terminal."""
