"""Exports networks for use outside of this package: all networks as safetensors, and generators as ONNX files."""
