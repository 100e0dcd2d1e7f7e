"""The commands that are no step: a file or an experiment -> a table, a picture, another file."""
