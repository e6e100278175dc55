"""The backends that run a bundle's graphs: ONNX Runtime on the CPU and through CUDA, TensorRT."""
