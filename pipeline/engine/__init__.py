"""A configuration and steps -> a DAG, and the DAG -> artifacts in a cache, run in processes of their own."""
