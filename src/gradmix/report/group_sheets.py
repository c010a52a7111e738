"""Write discovered groups as folders with a contact sheet each."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from ..data import ImageSet
from ..errors import UserError
from ..recognition import Discovery
from ..recognition.discover import GROUP_FILE, check_free
from .pictures import contact_sheet

_MAX_PER_SHEET = 64
_SMALLEST_TILE = 64


def write_groups(found: Discovery, images: ImageSet, out: Path) -> None:
    """Write ``out``/N/sheet.png and group.json for each group, and groups.json: all files or none.

    ``images`` are those that were given to ``discover``; their sources are the files' names.
    """
    names = images.sources or tuple(str(i) for i in range(len(images)))
    files = [str(Path(name).absolute()) if images.sources else name for name in names]
    check_free(out)
    part = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}.", suffix=".part"))
    try:
        listing = []
        for number, group in enumerate(found.groups, start=1):
            about = {
                "number": number,
                "images": len(group.members),
                "cohesion": round(group.cohesion, 4),
                "nearest": group.nearest,
                "files": [files[i] for i in group.members],
            }
            folder = part / str(number)
            folder.mkdir()
            (folder / GROUP_FILE).write_bytes(_to_json(about))
            shown = images.select(group.members[:_MAX_PER_SHEET])
            scale = max(1, -(-_SMALLEST_TILE // shown.images.shape[-1]))
            (folder / "sheet.png").write_bytes(contact_sheet(shown.images[:], scale=scale))
            listing.append(about)
        left_over = [files[i] for i in found.left_over]
        whole = {"groups": listing, "left_over": left_over, "known": [files[i] for i in found.accepted]}
        (part / "groups.json").write_bytes(_to_json(whole))
        part.chmod(0o755)
        part.rename(out)
    except OSError as error:
        raise UserError(f"could not write {out}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _to_json(content: dict[str, object]) -> bytes:
    """Encode as JSON; names that are not UTF-8 get escapes, which ``enroll --group`` reads."""
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")
