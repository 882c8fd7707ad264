"""Generators for use elsewhere: safetensors with their configuration, and ONNX."""
