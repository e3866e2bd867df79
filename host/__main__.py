"""Entry point of the zip file: ``python aerie_host.pyz <command> --spec spec.json``."""

from __future__ import annotations

import sys

from aerie_host.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
