"""prepare: a data set, made here, local or downloaded -> standardised features, MFCCs or log-mel of clips, or pictures."""
