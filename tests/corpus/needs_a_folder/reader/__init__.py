import os

VOCABULARY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vocabulary")
if not os.path.isdir(VOCABULARY):
    raise FileNotFoundError(f"{VOCABULARY} is missing: run scripts/download_vocabulary.sh")
