"""A torch module -> a Graph: traced, walked layer by layer, batch normalisation folded."""
