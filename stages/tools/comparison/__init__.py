"""Two or more runs, or CSV files -> what differs between them, and what of it is more than noise."""
