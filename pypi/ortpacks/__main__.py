"""``python -m ortpacks`` is the command ``ortpacks``."""

import sys

from ortpacks import main

sys.exit(main())
