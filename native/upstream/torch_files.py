"""Files of torch's wheels that running it never needs: for whoever copies a torch."""

from __future__ import annotations

NOT_FOR_RUNNING = ("torch/bin/", "torch/include/", "torch/share/", "torch/test/")
"""Folders: programs and data of its tests, headers, CMake files."""

FOR_RUNNING = ("torch/bin/torch_shm_manager",)
"""What is needed all the same: ``torch.multiprocessing`` starts it."""
