"""TensorRT plans of a bundle: which library, what decides a plan, how it is built, where it is kept."""
