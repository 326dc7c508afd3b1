"""Log files as others write them, turned into frames of plain strings, block by block."""
