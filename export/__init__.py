"""From checkpoint to bundle: adapters, ONNX export, parity. The only room that uses torch, and only when asked."""

from __future__ import annotations

from .adapter import Adapter, load_adapter, stand_in_adapter

__all__ = ["Adapter", "load_adapter", "stand_in_adapter"]
