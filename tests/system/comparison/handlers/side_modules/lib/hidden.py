WORD = "hidden"
