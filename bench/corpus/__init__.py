"""Trained ONNX files of Python packages, none of them prepared for us: which of them we take."""
