"""Computations that several formats have operators for, written once as Relax.

These are functions of a ``BlockBuilder`` and Relax values that know no format's names, attributes
or defaults: a converter translates these, and refuses what its format does not have.
"""
