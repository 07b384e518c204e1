"""Schedule every function: by our rules, by TVM's, or by what was measured or stored."""
