"""Exports a checkpoint as a bundle: adapters, ONNX export, parity. The only package that imports torch."""

from __future__ import annotations

from .adapter import Adapter, load_adapter, stand_in_adapter

__all__ = ["Adapter", "load_adapter", "stand_in_adapter"]
