"""A model's report as one HTML file that needs no network: what it holds, and how it is drawn."""
