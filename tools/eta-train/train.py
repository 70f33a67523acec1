#!/usr/bin/env python3
"""Train a model for eta.estimator: model.

Reads the examples that `gateway eta backtest --examples FILE` wrote, learns the factor by which the estimator window is
wrong, and writes the model to --out or standard output. Needs numpy and scikit-learn (Debian: python3-sklearn). The same examples
and seed give the same trees.
"""

import argparse
import datetime
import json
import os
import sys

try:
    import numpy as np
    from sklearn.ensemble import GradientBoostingRegressor
except ImportError as e:
    sys.exit(f"{e}: {sys.executable} has no numpy and scikit-learn; on Debian apt-get install python3-sklearn and run this with /usr/bin/python3, or use make eta-train")

FEATURES = ["log_seconds", "hour", "hour_then", "minute", "five", "quarter", "used", "full", "gone"]
MOST = 1.5  # a model changes a wait by a factor of at most e^1.5


def read(files, most, rng):
    """Return features and logarithms of real over estimated wait, of at most `most` examples, drawn at random."""
    x, y = [], []
    for name in files:
        with (sys.stdin if name == "-" else open(name, encoding="utf-8")) as lines:
            for number, line in enumerate(lines, 1):
                example = json.loads(line)
                if len(example["x"]) != len(FEATURES):
                    sys.exit(f"{name}:{number}: {len(example['x'])} features; want {len(FEATURES)}: {', '.join(FEATURES)}")
                x.append(example["x"])
                y.append(np.log(example["real_seconds"] / example["window_seconds"]))
    x, y = np.array(x), np.clip(np.array(y), -MOST, MOST)
    if len(y) < 1000:
        sys.exit(f"{len(y)} examples are too few; want 1000 or more, of several days")
    if len(y) > most:
        chosen = rng.choice(len(y), most, replace=False)
        x, y = x[chosen], y[chosen]
    return x, y


def tree(estimator, rate):
    """One tree in the form of the model file: nodes follow their parents, leaves are scaled by the learning rate."""
    t = estimator.tree_
    leaf = t.children_left == -1
    value = np.where(leaf, t.value[:, 0, 0] * rate, t.threshold)
    return {
        "feature": [-1 if l else int(f) for l, f in zip(leaf, t.feature)],
        "value": [float(f"{v:.5g}") for v in value],
        "left": [0 if l else int(c) for l, c in zip(leaf, t.children_left)],
        "right": [0 if l else int(c) for l, c in zip(leaf, t.children_right)],
    }


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[1])
    p.add_argument("files", nargs="+", metavar="FILE", help="examples, NDJSON; - for standard input")
    p.add_argument("--out", metavar="MODEL", help="where to write the model, whole or not at all (default: standard output)")
    p.add_argument("--trees", type=int, default=90, help="trees (default 90)")
    p.add_argument("--depth", type=int, default=4, help="splits from root to leaf (default 4)")
    p.add_argument("--rate", type=float, default=0.1, help="learning rate (default 0.1)")
    p.add_argument("--examples", type=int, default=60000, help="learn from at most so many (default 60000)")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()

    rng = np.random.default_rng(a.seed)
    x, y = read(a.files, a.examples, rng)
    test = rng.random(len(y)) < 0.2
    model = GradientBoostingRegressor(
        loss="absolute_error", n_estimators=a.trees, max_depth=a.depth, learning_rate=a.rate,
        subsample=0.5, min_samples_leaf=50, random_state=a.seed)
    model.fit(x[~test], y[~test])
    off = lambda log: float(np.mean(np.abs(np.exp(-log) - 1)))  # |promised - real| / real
    print(f"{len(y)} examples; mean absolute percentage error on the fifth that was held out: "
          f"{100 * off(y[test]):.1f} % by window, {100 * off(y[test] - model.predict(x[test])):.1f} % by the model", file=sys.stderr)
    text = json.dumps({
        "format": "anteroom-eta-model", "version": 1,
        "trained_at": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "features": FEATURES,
        "low": [float(v) for v in x.min(axis=0)], "high": [float(v) for v in x.max(axis=0)],
        "base": float(model.init_.constant_[0][0]), "most": MOST,
        "trees": [tree(e[0], a.rate) for e in model.estimators_],
    }, separators=(",", ":"))
    if not a.out:
        print(text)
        return
    with open(a.out + ".new", "w", encoding="utf-8") as f:
        print(text, file=f)
    os.replace(a.out + ".new", a.out)


if __name__ == "__main__":
    main()
