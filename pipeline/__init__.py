"""The engine: DAG, cache, configuration, executors and command line. It knows no machine learning, no C, no serial port."""
