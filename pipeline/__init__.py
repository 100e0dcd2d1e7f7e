"""The engine: DAG, cache, configuration, executor, command line. It knows no machine learning, no C, no serial port."""
