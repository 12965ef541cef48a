"""Takes the picture in README.md: the report of examples/link-flap.toml in a headless Chromium.

    python tools/picture.py [TARGET.png]

For the eye; run it when the report or the example looks different.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import openmrc

ROOT = Path(__file__).resolve().parents[1]
WIDTH_PX, HEIGHT_PX = 1000, 1440
LARGEST_BYTES = 300_000


def main(arguments: list[str]) -> int:
    """Simulate, render, photograph."""
    target = Path(arguments[0]) if arguments else ROOT / "docs/images/link-flap.png"
    browser = next((b for b in ("chromium", "chromium-browser", "google-chrome") if shutil.which(b)), None)
    if browser is None:
        print("no Chromium on the path; install one (Debian: apt-get install chromium)", file=sys.stderr)
        return 2
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(openmrc.run(ROOT / "examples/link-flap.toml").to_html(), encoding="utf-8")
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={folder}/profile", "--virtual-time-budget=8000"]
        command += [f"--window-size={WIDTH_PX},{HEIGHT_PX}", f"--screenshot={target}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    size = target.stat().st_size
    print(f"wrote {target}, {size / 1000:.0f} kB")
    return 0 if size < LARGEST_BYTES else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
