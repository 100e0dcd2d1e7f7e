"""Clips and pictures -> examples: a user's own folder as a data set, and training examples made anew in every epoch."""
