"""How large, and with whom: tile decisions as pure functions on frozen data."""
