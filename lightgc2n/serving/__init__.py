"""A bundle behind HTTP: lists, people and a page, with onnxruntime and numpy, never torch."""
