"""Exports networks for use outside of this package: as safetensors, as ONNX files, and as folders for diffusers."""
