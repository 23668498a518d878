"""Built models: what identifies them, where they are kept, how they are made."""
