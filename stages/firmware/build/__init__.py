"""C and assembly -> images: the compiler, and what is linked for a board and for its twin."""
