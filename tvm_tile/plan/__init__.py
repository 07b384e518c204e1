"""Where and when: what was compiled, and how."""
