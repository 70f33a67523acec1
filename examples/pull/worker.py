"""A worker of run.sh: it "resizes" images, and notes each run in a file.

usage: worker.py URL NAME LEDGER
"""

import pathlib
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "sdk" / "worker" / "python"))
from bulkworker import BulkWorker, Failure  # noqa: E402

_, url, name, ledger = sys.argv
worker = BulkWorker(url, name=name, parallel=50)
runs = open(ledger, "a", buffering=1)  # a line is written at once and as a whole


@worker.handle("resize")
def resize(job):
    width = job.payload.get("width")
    if not isinstance(width, int) or width < 1:
        raise Failure(f"width {width!r}: a whole number from 1 on is needed", verdict="failed", code="bad_width")
    runs.write(f"{job.id} {name} {job.fence}\n")
    return {"width": width, "height": width * 9 // 16}


signal.signal(signal.SIGTERM, lambda *_: worker.stop())
worker.run()
