"""The points of a study -> its table with standard errors and the paper's figures, its charts, what is significant."""
