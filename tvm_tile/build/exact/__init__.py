"""Numbers as they are written: what TVM's passes and compilers must not change."""
