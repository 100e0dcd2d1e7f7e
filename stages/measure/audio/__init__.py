"""A board that hears -> features, detections and their comparison with the host's."""
