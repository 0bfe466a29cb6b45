"""``python -m tj_core``: the doctor."""

import sys

from ._doctor import main

if __name__ == "__main__":
    sys.exit(main())
