"""``python -m openmrc`` is the command ``mrc``."""

from openmrc.cli import main

if __name__ == "__main__":
    main()
