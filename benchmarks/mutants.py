"""Whether the tests notice broken wiring: one line of the sources is broken at a time, and tests are run.

    python benchmarks/mutants.py [--only session] [--from 1] [--to 10]

Formulas are held by references and peers; this is about what connects them: the loop, the stages, the saved
state, the decision, the calibration, the guard. Sources and tests are copied to a temporary folder, so that
nothing here changes. Printed for each mutant: killed and the first test that failed, or SURVIVED; then the
score. A mutant that changes no behaviour does not belong here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("src", "tests", "pyproject.toml")
TIMEOUT = 600  # a mutant that hangs is noticed too


class Mutant(NamedTuple):
    """``old``, which ``file`` (under src/gradmix) holds once, becomes ``new``; ``tests`` should notice."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """The file and what is broken, in one line."""
        before, after = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file}: {before} → {after}"

    def check(self, root: Path = ROOT) -> None:
        """Raise ValueError if the file has not the old text exactly once, or a test file is missing."""
        found = self.source(root).read_text(encoding="utf-8").count(self.old)
        if found != 1:
            raise ValueError(f"{self.name}: the text occurs {found} times, not once")
        for test in self.tests:
            if not (root / "tests" / test).is_file():
                raise ValueError(f"{self.name}: there is no tests/{test}")

    def source(self, root: Path) -> Path:
        """The file that is broken."""
        return root / "src" / "gradmix" / self.file


LOOP, PARTS = "training/test_loop.py", "training/test_parts.py"
RESUME = "training/test_resume.py"
FREEZE = "training/test_freeze.py"
STAGES, FP16 = "training/test_stages.py", "training/test_fp16.py"
GROUP = "distributed/test_process_group.py"
DECISION, THRESHOLD = "detection/test_decision.py", "detection/test_threshold.py"
DRIFT = "detection/test_drift.py"
KNOWN = "detection/test_known_scores.py"
ENROLL, RECOGNIZER = "recognition/test_enroll.py", "recognition/test_recognizer.py"
CALIBRATED = "recognition/test_calibration.py"
FORMAT, DAMAGED = "recognition/test_model_format.py", "recognition/test_damaged_model.py"
GUARD, ACCESS, LIMITS = "serve/test_guard.py", "serve/test_access.py", "serve/test_limits.py"


def _mutants(file: str, *rows: tuple[str, str, tuple[str, ...]]) -> list[Mutant]:
    return [Mutant(file, *row) for row in rows]


MUTANTS: list[Mutant] = [
    *_mutants(
        "training/session.py",
        ("set_learning_rate(state.optimizer, lr)", "pass", (RESUME,)),
        ("learning_rate(step - stage.start, steps,", "learning_rate(step, total,", (STAGES,)),
        ("size_at(step / total)", "size_at(1.0)", (PARTS,)),
        ('generator_for(s.seed, "step", step)', 'generator_for(s.seed, "step", 0)', (LOOP,)),
        ("if method.view_count == 2:", "if False:", (LOOP,)),
        ("images.labels[index].to(device)", "images.labels[: len(index)].to(device)", (LOOP,)),
        ("step // steps_per_epoch, stage", "step, stage", (LOOP,)),
        ("state.optimizer.zero_grad()", "pass", (LOOP,)),
        ('not math.isfinite(values["loss"])', "False", (RESUME,)),
        ("average_gradients(state.parameters, group)", "pass", (LOOP,)),
        ("scaler.unscale_(state.optimizer)", "pass", (PARTS,)),
        ("torch.nn.utils.clip_grad_norm_(state.parameters, stage.settings.clip_norm)", "pass", (PARTS,)),
        ("scaler.update()", "pass", (FP16,)),
        (" or step == stage.end:", ":", (LOOP,)),
        ("**state.pending.take()", "**values", (LOOP,)),
        ("with clock.pause():", "if True:", (LOOP,)),
        ("state.freezer.set_modes(stage.stage)", "pass", (STAGES,)),
        ("due = step == total or ", "due = ", (LOOP,)),
        ("save()\n                    raise Interrupted", "raise Interrupted", (RESUME,)),
        ("save()\n                    last_save = time.monotonic()", "save()", (LOOP,)),
        ("Augment(stage.views, normalizer)", "Augment(recipe.views, normalizer)", (STAGES,)),
        ("stack.callback(state.freezer.leave)", "pass", (STAGES,)),
        ("    network.eval()\n", "", (PARTS,)),
        ("freeze_encoder(method, recipe.model.freeze)", "pass", (FREEZE,)),
        ("state.freezer.enter(stage.stage)  #", "pass  #", (STAGES,)),
        ("seed_global_generator(s.seed, step, group, device)", "pass", (STAGES,)),
        ("stack.enter_context(run.exclusive())", "pass", (RESUME,)),
    ),
    *_mutants(
        "training/stages.py",
        ("round(total * until / whole)", "round(total * until)", (STAGES,)),
        ("parameter.requires_grad_(on)", "parameter.requires_grad_(True)", (STAGES,)),
        ("trained += [parameter] if on else []", "trained += [parameter]", (STAGES,)),
        ("parameter.grad = None", "pass", (STAGES,)),
        ("module.training = False", "pass", (STAGES,)),
        ('name.startswith(f"{part}.")', "name.startswith(part)", (STAGES,)),
        ("list | tuple | set | frozenset", "list | tuple", (STAGES,)),
        ("tensor.requires_grad and tensor.is_leaf and", "tensor.requires_grad and", (STAGES,)),
    ),
    *_mutants(
        "training/checkpoint.py",
        ('int(state["stage"])', "0", (STAGES,)),
        ('self.optimizer.load_state_dict(state["optimizer"])', "pass", (RESUME,)),
        ('self.scaler.load_state_dict(state["scaler"])', "pass", (LOOP,)),
        ('LossSums(dict(state["pending"]), int(state["pending_count"]))', "LossSums()", (RESUME,)),
        ('bool(state["begun"])', "True", (LOOP,)),
        ('float(state.get("core_minutes", 0.0))', "0.0", (LOOP,)),
        ("self.sums, self.count = {}, 0", "pass", (LOOP,)),
    ),
    *_mutants(
        "training/schedule.py",
        ("min(1.0, t)", "t", ("training/test_schedule.py",)),
    ),
    *_mutants(
        "distributed/gradients.py",
        ("tensor /= group.size", "pass", (GROUP,)),
        ("float(group.size)", "1.0", (GROUP,)),
        (" if p.grad is not None]", "]", (GROUP,)),
    ),
    *_mutants(
        "detection/decision.py",
        ("if not self.class_bias:", "if True:", (DECISION,)),
        ("outputs.select(rows)", "outputs", (DECISION,)),
        ("self.threshold[rows])", "self.threshold)", (DECISION,)),
        ("self.p_value[rows]", "self.p_value", (DECISION,)),
        ("clamp_to_finite(margin)", "margin", (DECISION,)),
        ("return scores, self.threshold.value", "return scores, 0.0", (DECISION,)),
    ),
    *_mutants(
        "detection/threshold.py",
        ("_of_class(scores[labels == c], false_reject, overall.value)",
         "_of_class(scores[labels == c], false_reject, -math.inf)", (THRESHOLD,)),
        ("float(scores.sort().values.std(correction=0))", "0.0", (THRESHOLD,)),
        ("scores.label.cpu()[order]", "scores.label.cpu()", (KNOWN,)),
        ("labels=self.label if per_class else None", "labels=None", (KNOWN,)),
        ("held_out=self.held_out", "held_out=True", (KNOWN,)),
        ("if conformal_rank(len(own), threshold.false_reject):", "if True:", (KNOWN,)),
        ("torch.where(p_own > least,", "torch.where(p_own > 0,", (KNOWN,)),
        ("max(false_reject, 1 / (len(own) + 1))", "false_reject", (KNOWN,)),
        ("score.double(), right=True)).double()", "score.double())).double()", (KNOWN,)),
        ("score = torch.where(near,", "torch.where(near,", (KNOWN,)),
    ),
    *_mutants(
        "detection/drift.py",
        ("if label in self._seen and score > self._above[label]:", "if label in self._seen:", (DRIFT,)),
        ("if label not in self._seen or not score > self._above[label]:",
         "if label not in self._seen:", (DRIFT,)),
        ("if threshold.held_out:", "if True:", (DRIFT,)),
        ("if label in known.enrolled:", "if False:", (DRIFT,)),
        ("self.highest_log10 = max(self.highest_log10, self._jumper.log10)", "pass", (DRIFT,)),
    ),
    *_mutants(
        "serve/drift_monitor.py",
        ("or served.number > self._model:", "or False:", ("serve/test_drift_monitor.py",)),
        ("if served.number < self._model:", "if False:", ("serve/test_drift_monitor.py",)),
        ("self._test if self._model == served.number else None",
         "self._test", ("serve/test_drift_monitor.py",)),
    ),
    *_mutants(
        "recognition/calibration.py",
        ("source = train if held_out is None else split",
         "source = train or split", (CALIBRATED, ENROLL)),
        ("KnownScores.of(detector.score(source), classes, held_out is not None)",
         "KnownScores.of(detector.score(source), classes)", (CALIBRATED, ENROLL)),
        ("KnownScores.of(scores, classes, held_out is not None, own)",
         "KnownScores.of(scores, classes, True, own)", (CALIBRATED, ENROLL)),
        ("found.score[found.label == label]", "found.score", (CALIBRATED, ENROLL)),
        (" or len(enrolled) == classes:", ":", (CALIBRATED, ENROLL)),
    ),
    *_mutants(
        "recognition/class_bias.py",
        ("d[:, trained].amax(dim=1)", "d.amax(dim=1)", (CALIBRATED, ENROLL)),
        ("torch.minimum(bound, own_typical - typical)", "bound", (CALIBRATED, ENROLL)),
        ("max(0.0, float(bound))", "float(bound)", (CALIBRATED, ENROLL)),
    ),
    *_mutants(
        "recognition/enroll.py",
        ("recognizer.enrolled_names if exists else (*recognizer.enrolled_names, name)",
         "(*recognizer.enrolled_names, name)", (ENROLL,)),
        ("_without(recognizer.calibration, gone, trained=name not in recognizer.enrolled_names)",
         "recognizer.calibration", (ENROLL,)),
        ("_close_gap(left.labels, gone)", "left.labels", (ENROLL,)),
        ('state["lengths"] = index["lengths"][keep]', "pass", (ENROLL,)),
    ),
    *_mutants(
        "recognition/model_format.py",
        ("return network.eval()", "return network", (RECOGNIZER,)),
        ('state.get("logits")', "None", (FORMAT,)),
        ('plain.get("held_out", True)', "True", (RECOGNIZER,)),
        (' if name != "init"}', "}", (RECOGNIZER,)),
    ),
    *_mutants(
        "recognition/model_checks.py",
        ("if len(bias) not in (0, classes):", "if False:", (RECOGNIZER, DAMAGED)),
        ("if len(by_class) not in (0, classes):", "if False:", (DAMAGED,)),
        ("left -= 1", "pass", (DAMAGED,)),
    ),
    *_mutants(
        "recognition/model_file.py",
        ("if seal != _SEAL.format(checksum(tensors, plain)):", "if False:", (DAMAGED,)),
    ),
    *_mutants(
        "serve/guard.py",
        ("self._hosts.check(host)", "pass", (GUARD,)),
        ('check_origin(headers.get(b"origin"), site, host, mode)', "pass", (GUARD,)),
        ("        if wait:\n", "        if False:\n", (GUARD,)),
        ("retry_after=math.ceil(wait)", "retry_after=int(wait)", (GUARD,)),
        ("self._held.give_back(len(body))", "pass", (GUARD,)),
        ("self._held.take(len(chunk))", "pass", (GUARD,)),
        ("                await self._drain_body(scope, incoming)\n", "", (GUARD,)),
        ('if any(key == b"expect" for key, _ in scope["headers"]):', "if False:", (GUARD,)),
        ("left = _DRAIN_FACTOR * self._limits.upload_bytes", "left = math.inf", (GUARD,)),
        (", *_SECURITY_HEADERS]", "]", (GUARD,)),
        ("Deadline(self._limits.answer_seconds)", "Deadline(self._limits.seconds)", (GUARD,)),
        ("count_request(endpoint, status,", "count_request(path, status,", (GUARD,)),
    ),
    *_mutants(
        "serve/access.py",
        ('if origin is None and fetch_site in ("cross-site", "same-site") and', "if False and", (ACCESS,)),
        ("(host or '').lower()", "(host or '')", (ACCESS,)),
        ('token.strip() if scheme.lower() == "bearer" else None', "token.strip()", (ACCESS,)),
    ),
    *_mutants(
        "serve/limits.py",
        ("key, now = client_key(client), self._clock()", "key, now = client, self._clock()", (LIMITS,)),
        ("popitem(last=False)", "popitem()", (LIMITS,)),
        ("if self._clients[key] <= 0:", "if False:", (LIMITS,)),
        ("            work.cancel()\n            raise", "            raise", (LIMITS,)),
        ("(work.cancel() or not finish)", "not finish", (LIMITS,)),
    ),
]  # fmt: skip


def run_mutant(mutant: Mutant) -> str:
    """Return the first test that fails with the mutant, or "" if none does."""
    mutant.check()
    with copied_tree() as copy:
        file = mutant.source(copy)
        broken = file.read_text(encoding="utf-8").replace(mutant.old, mutant.new)
        file.write_text(broken, encoding="utf-8")
        return run_tests(copy, mutant.tests)


@contextmanager
def copied_tree() -> Iterator[Path]:
    """A temporary folder with the sources and the tests."""
    with tempfile.TemporaryDirectory(prefix="gradmix-mutant-") as name:
        for part in COPIED:
            if (ROOT / part).is_dir():
                shutil.copytree(ROOT / part, Path(name, part))
            else:
                shutil.copy(ROOT / part, Path(name, part))
        yield Path(name)


def run_tests(copy: Path, tests: Collection[str]) -> str:
    """Return the name of the first test of these files that fails in the copy, or "" if none does."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-m", "not slow and not oracle", *(f"tests/{test}" for test in tests)]
    environment = os.environ | {"PYTHONPATH": str(copy / "src")}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        return "time is up"
    if done.returncode == 0:
        return ""
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    if not failed:  # no test ran: that is no answer
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return failed[0].rpartition("::")[2]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="", metavar="FILE-PART", help="only files whose name has this in it"
    )
    parser.add_argument("--from", dest="first", type=int, default=1, metavar="N")
    parser.add_argument("--to", dest="last", type=int, default=len(MUTANTS), metavar="M")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time (default 1)")
    args = parser.parse_args()
    chosen = [
        (number, mutant)
        for number, mutant in enumerate(MUTANTS, 1)
        if args.first <= number <= args.last and args.only in mutant.file
    ]
    for _, mutant in chosen:
        mutant.check()

    with copied_tree() as copy:
        wrong = run_tests(copy, sorted({test for _, mutant in chosen for test in mutant.tests}))
    if wrong:
        raise SystemExit(f"{wrong} fails with nothing broken")
    killed = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        killers = pool.map(run_mutant, [mutant for _, mutant in chosen])
        for (number, mutant), killer in zip(chosen, killers, strict=True):
            killed += bool(killer)
            print(f"{number:3} {'killed  ' if killer else 'SURVIVED'} {mutant.name}  {killer}", flush=True)
    print(f"{killed} of {len(chosen)} killed")
    sys.exit(killed < len(chosen))


if __name__ == "__main__":
    main()
