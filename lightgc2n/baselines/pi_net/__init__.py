"""π-Net and PSJNet-II."""
