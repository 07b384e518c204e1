"""Random graphs: drawn, compiled, compared, and shrunk to a few lines where they are wrong."""
