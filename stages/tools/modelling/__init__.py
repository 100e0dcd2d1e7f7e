"""The cycle model -> what it says of any program, and what a board says of the model."""
