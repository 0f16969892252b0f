"""What plans say and runs do, recorded: a move of code that changes a bit shows here."""
