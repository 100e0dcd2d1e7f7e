"""Touches of code and data (plugin/trace_model.h) and where these lie -> cache lines that each op fetches."""
