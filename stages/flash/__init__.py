"""A firmware image -> the board or twin that runs it, with the proof that it does."""
