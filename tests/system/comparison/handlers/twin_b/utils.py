WORD = "twin_b"
