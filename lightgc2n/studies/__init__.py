"""The experiments of the paper, and ours: what each one runs, and the section that its run folders make."""
