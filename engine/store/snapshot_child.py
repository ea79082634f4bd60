"""Run as `python -m engine.store.snapshot_child JSON`: fetches one repository of the hub."""

from __future__ import annotations

import json
import os
import sys


def main(task: str) -> int:
    """Call `snapshot_download` with the keys of the JSON object `task`; 0 is success."""
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(**json.loads(task))
    except Exception as error:  # the last line of stderr is shown to people
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
