"""The sources of a piece of music: Demucs, a U-Net on waveforms."""
