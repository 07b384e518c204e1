"""What matrix units multiply: products step by step, and how operands and sums lie for them."""
