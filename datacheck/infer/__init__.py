"""What a draft of a schema is made from: profiles of fields, guesses of roles, groups of files."""
