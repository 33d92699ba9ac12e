"""Writers: results to text. Each takes the results and returns what to print; none touches the disk or the terminal."""
