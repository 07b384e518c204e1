"""``python -m tvm_tile.cli``, where the script ``tvm-tile`` is not on the path."""

from __future__ import annotations

import sys

from tvm_tile.cli import main

sys.exit(main())
