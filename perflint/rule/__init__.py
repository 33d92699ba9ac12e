"""What a rule is, what it sees and what it reports."""
