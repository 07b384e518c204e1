"""What models become for GPUs that are not here: machine code, as its own metadata describes it."""
