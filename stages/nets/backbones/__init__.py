"""Width, depth and input shape -> a torch module: the networks of the paper and of MLPerf Tiny."""
