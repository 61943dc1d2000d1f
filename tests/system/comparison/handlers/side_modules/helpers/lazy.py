WORD = "lazy"
