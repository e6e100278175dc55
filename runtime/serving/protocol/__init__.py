"""Requests, answers, tensors and errors of the Open Inference Protocol, the same for HTTP and gRPC."""
