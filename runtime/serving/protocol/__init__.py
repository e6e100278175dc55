"""Requests, answers and errors of the Open Inference Protocol, whatever carries them."""
