"""What passes read of a module, and how they rewrite its functions."""
