"""A speech model: Tacotron 2, from text to a mel spectrogram."""
