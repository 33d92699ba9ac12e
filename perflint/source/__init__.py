"""What the text of one file says: bytes, words, the gate, the syntax of its functions."""
