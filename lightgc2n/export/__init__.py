"""Export of a trained run as a bundle: ONNX graph, weights, vocabularies, model card and checksums."""
