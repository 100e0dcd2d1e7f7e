"""A run -> its own folder with run.json, kept until it is dropped, and found again by its id."""
