"""TensorRT plans of a bundle: the libraries, the key of a plan, building and storage."""
