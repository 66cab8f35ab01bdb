"""All training runs one after the other, in one process so that the compiled layers serve them all.

usage: recipe.py DATA_DIR OUT_DIR SECONDS      (SECONDS for the steps of all runs together: 430 on one H200)

Four teachers that differ in regularisation, learning rate and seed; a student of all four that unlearns
loops in its last quarter; and a further stage from the student, with more loops (OUT_DIR/polished is
the model). A run that fails is left out.
"""
import gc
import os
import sys
import traceback

import torch

import train

TEACHERS = dict(
    t1=(0.125, "--lr", "3e-3", "--wd", "0.8", "--dropout", "0.25"),
    t2=(0.125, "--lr", "4e-3", "--wd", "0.6", "--dropout", "0.3"),
    t3=(0.125, "--lr", "3e-3", "--wd", "1.2", "--dropout", "0.2"),
    t4=(0.125, "--lr", "2.5e-3", "--wd", "1.0", "--dropout", "0.3"),
)
STUDENT = (0.42, "--dropout", "0.12", "--loops-from", "0.75")
POLISHED = (0.08, "--dropout", "0.12", "--lr", "5e-4", "--warmup", "30",
            "--loops-from", "0", "--loop-rows", "6")
WORST = 0.08  # a teacher whose validation loss is that far above the best one's is left out


def main(data, out, seconds):
    reports = {}

    def run(name, seed, part, *settings):
        try:
            reports[name] = train.main(["--data", data, "--out", os.path.join(out, name), "--seed", str(seed),
                                        "--seconds", str(part * float(seconds)), *settings])
        except (Exception, SystemExit):
            traceback.print_exc()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    for seed, (name, settings) in enumerate(TEACHERS.items(), 1):
        run(name, seed, *settings)
    best = min(r["val_loss"] for r in reports.values())
    teach = ["--teach", *(os.path.join(out, n) for n, r in reports.items() if r["val_loss"] < best + WORST)]
    run("student", 5, *STUDENT, *teach)
    run("polished", 6, *POLISHED, "--start", os.path.join(out, "student"), *teach)


if __name__ == "__main__":
    main(*sys.argv[1:4])
