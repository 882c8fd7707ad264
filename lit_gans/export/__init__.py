"""Networks for use elsewhere: all of them as safetensors with their configuration, and generators as ONNX."""
