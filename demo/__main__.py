"""``python demo`` is ``python demo/digits.py``."""

import sys

from digits import main

if __name__ == "__main__":
    sys.exit(main())
