"""An experiment's configuration -> what its training will cost, before it is spent."""
