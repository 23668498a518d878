"""Live transcription: any speech recognition pipeline over audio that is still arriving."""
