"""A finished run -> a published network with its card; any int8 network -> its accuracy on a data set."""
