"""Stages of the pipeline that take several passes, and what holds around all of them."""
