"""report: the artifacts of all other steps -> CSV files, a table for the terminal, a page and its figures."""
