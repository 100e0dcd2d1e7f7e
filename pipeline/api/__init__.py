"""Calls of Python -> typed results: what notebooks and scripts use, and what the command line prints."""
