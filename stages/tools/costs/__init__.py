"""A network that was not trained yet -> what it costs on a board, and what budgets it can meet."""
