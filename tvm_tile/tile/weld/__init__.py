"""Which operators of a model become one kernel."""
