"""Draw all pictures: ``scripts/draw-pictures``."""

from __future__ import annotations

from scripts.pictures.digest import FOLDER, digest
from scripts.pictures.drawings import save
from scripts.pictures.runs import RUNS

for name, run in RUNS.items():
    rows = run()
    path = FOLDER / f"{name}.svg"
    save(name, rows, str(path), digest(rows))
    # Matplotlib ends lines of paths with a space, which editors would remove.
    text = path.read_text(encoding="utf-8")
    path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n", "utf-8")
