"""Files of torch's wheels that are not needed to run torch."""

from __future__ import annotations

NOT_FOR_RUNNING = ("torch/bin/", "torch/include/", "torch/share/", "torch/test/")
"""Folders with programs and data of its tests, headers, CMake files."""

FOR_RUNNING = ("torch/bin/torch_shm_manager",)
"""The exceptions: ``torch.multiprocessing`` starts this program."""
