"""Models to compare with, one file each; the floors learn nothing by gradient and stand in every table."""
