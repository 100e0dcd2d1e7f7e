"""Entries of the local cache <-> the same entries in a store that a whole lab shares."""
