"""A .tflite that somebody made elsewhere -> what `export` would have written: model, golden values, test set."""
