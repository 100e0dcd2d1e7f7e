"""A task of MLPerf Tiny on a board or its twin -> runner's files, logs, results, a submission folder, a verdict."""
