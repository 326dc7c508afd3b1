"""A trained run becomes a bundle: graph, weights, vocabularies, model card and checksums."""
