"""An attached board, or its twin -> a record of its first day: each check with what was expected and found."""
