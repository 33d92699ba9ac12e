"""How a finding's edits become new text."""
