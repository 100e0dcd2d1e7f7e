"""A name, arguments and channel widths -> a torch module, and the channel groups that pruning may cut."""
