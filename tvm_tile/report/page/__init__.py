"""A model's report, or what it takes on several devices, as one HTML file that needs no network.

``content.py`` is all that pages show; ``kernels.py``, ``graph.py``, ``plots.py`` and
``tables.py`` compute from it what the template writes, and ``layers.py`` and ``layout.py`` where
boxes and lines lie. ``page.html.jinja`` is a report's page and ``choices.html.jinja`` that of
several devices, both within ``base.html.jinja``; ``page.css`` is their looks, and ``page.js`` moves
the graph, finds and shows; there is no build step. A model may give its values any names: so only
Jinja writes text, which escapes it, and the page's policy lets the browser run this one script.

``tests/browser/`` opens pages in Chromium, which ``pip install -e '.[browser]'`` and ``apt-get
install chromium`` bring, and is skipped without it. ``python tools/report_pictures.py`` writes the
pictures of the documentation: look at them after a change.
"""
