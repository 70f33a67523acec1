"""Runs the cases of ../vectors.json.

With --lines it verifies the requests in each line of its input instead, and prints the results as a line, for test/sdk.
"""

import json
import pathlib
import sys
from concurrent.futures import ThreadPoolExecutor

import anteroom


def verifier(config, now):
    config = dict(config)
    revoked, evacuated = config.pop("revoked", None), config.pop("evacuated", None)
    if "jwks" in config:
        config["jwks"] = json.dumps(config["jwks"])
    made = anteroom.Verifier(config.pop("issuer"), now=now, **config)
    if revoked is not None:
        made.revoked_url = "http://gateway.test/.waiting-room/{room}/revoked"
        made.revoked["sale"] = anteroom.Document(None, None, now, (set(revoked), evacuated))
    return made


def lines():
    verifiers = {}
    for line in sys.stdin:
        call = json.loads(line)
        if call["id"] not in verifiers:
            clock = {}
            verifiers[call["id"]] = clock, verifier(call["config"], lambda clock=clock: clock["now"])
        clock, made = verifiers[call["id"]]
        clock["now"] = call["now"]
        with ThreadPoolExecutor(len(call["requests"]) if call.get("concurrent") else 1) as pool:
            results = list(pool.map(lambda r: made.verify(r["headers"], r["room"])._asdict(), call["requests"]))
        print(json.dumps(results), flush=True)


def main():
    cases = json.loads((pathlib.Path(__file__).parent.parent / "vectors.json").read_text(encoding="utf-8"))
    failed = 0
    for case in cases:
        got = verifier(case["config"], lambda case=case: case["now"]).verify(case["headers"], case["room"])._asdict()
        if got != case["want"]:
            failed += 1
            print(f"{case['name']}: {got}, want {case['want']}", file=sys.stderr)
    print(f"python: {len(cases) - failed} of {len(cases)} cases")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(lines() if "--lines" in sys.argv else main())
