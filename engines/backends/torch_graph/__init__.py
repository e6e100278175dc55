"""Runs an ONNX graph with PyTorch's operators. Every module here imports torch: import them inside functions only."""
