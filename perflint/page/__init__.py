"""Pages in HTML: one self-contained file each."""
