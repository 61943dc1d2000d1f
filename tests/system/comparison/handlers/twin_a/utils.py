WORD = "twin_a"
