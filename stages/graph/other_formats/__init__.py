"""A Keras model or a torch module -> .tflite by the tools of others, for import and for comparison."""
