"""Steps -> tasks on the nodes of a Ray cluster, the boards of a host -> what such a cluster can be asked for."""
