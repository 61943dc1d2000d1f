WORD = "late"
