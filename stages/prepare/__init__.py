"""prepare: a data set, made here, local or downloaded -> standardised features, MFCCs of clips or pictures."""
