"""TVM's MetaSchedule (Ansor's successor) on single operators, tuned quickly and resumably.

``python -m bench.metaschedule`` tunes; ``bench/systems/metaschedule.py`` runs what it found. The
search is MetaSchedule's own: its rules, evolutionary search, XGBoost model and database, with
their default settings. Only what compiles and times the candidates is ours:

* ``build``: candidates are lowered in threads and compiled by NVRTC in processes;
* ``measure``: a process that survives its candidates times them with a cold cache;
* ``records``: the database, compressed, and how the tuning went;
* ``search``: the loop over rounds.
"""
