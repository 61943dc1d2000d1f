WORD = "by path"
