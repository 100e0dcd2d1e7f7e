"""An image -> a board that runs it, with the proof that it does."""
