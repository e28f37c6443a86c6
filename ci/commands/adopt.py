"""`ridgeline adopt`: a benchmark script of any repository under paired A/B, unchanged."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click

from ci import adopt as scripts
from ci.adopt import PRINTED, NothingToCompare, ScriptRequest, SeenScript, import_paths
from ci.commands.measuring import compared_revisions, scratch, two_checkouts
from ci.commands.outcome import shown
from ci.git.repository import LocalCheckout, Repository
from ci.harness import machine_kind
from ci.isa.judge import CodeVerdict, IsaJudgement, as_json
from ci.isa.rules import load_policy
from ci.isa.text import lines
from ci.judging import live, policy
from ci.judging.types import Verdict
from ci.options import (
    ANY,
    BUDGET,
    DRY_RUN,
    JSON,
    NO_VERDICT,
    OUT,
    PASS,
    POLICY,
    RARE,
    SECONDS,
    Given,
    WordsCommand,
    err_console,
    flag,
    option,
    print_json,
    pythons,
    several,
    verb,
    wait_for_turn,
    with_rounds,
    words_behind,
)
from ci.options import plan as planned
from ci.report.words import plain

EXAMPLES = """ridgeline adopt benchmarks/bench_gemm.py main my-branch -- --dtype bf16
  ridgeline adopt bench.py HEAD~5 --list
  ridgeline adopt bench.py --budget 10 --device cpu
  ridgeline adopt --ranks 2 bench/all_reduce.py main -- --size 65536"""


@verb(EXAMPLES, cls=WordsCommand)
@click.argument("script", type=ANY)
@click.argument("base", required=False)
@click.argument("head", required=False)
@option(
    "--script-from",
    "Whose text of the script runs on both sides (default: head); each: its own, the default with --arch.",
    click.Choice(("head", "base", "each")),
    heading=RARE,
)
@option("--ranks", "Processes that run it together a side, as torchrun starts them.", click.IntRange(1, 64))
@several(
    "--arch ARCH -> arches",
    "Compare what its launches execute on an emulated MI300X (gfx942) or MI355X (gfx950), exactly and without a GPU.",
    click.Choice(("gfx942", "gfx950")),
)
@option("--device", "Run on the CPU what the script wants on a GPU.", click.Choice(("cpu",)))
@option("--budget MINUTES", "For survey and trials; a sample is timed if not all fits.", click.FloatRange(0.1, 10_000))
@flag("--all-cases", "Time closures that run the same code on both sides, too.")
@several("--path FOLDER -> paths", "Folder of each checkout that imports search (repeatable).")
@flag("--list -> only_list", "Say what the script times and how long that takes.")
@option("--rounds", "Rounds in a trial (default: 40; 20 on a CPU).", click.IntRange(8, 10_000))
@option("--seed", "Of all random numbers.", click.IntRange(0, 2**31), default=0, show_default=True, heading=RARE)
@option(
    "--deadline SECONDS -> deadline_s",
    "Longest step, and longest time between two timers (default 600).",
    SECONDS,
    default=600.0,
    show_default=False,
    heading=RARE,
)
@option("--env-base PYTHON", "Python of the base.", heading=RARE)
@option("--env-head PYTHON", "Python of the head.", heading=RARE)
@BUDGET
@POLICY
@OUT
@JSON
@DRY_RUN
def adopt(given: Given) -> int:
    """Compare two commits by a benchmark script of the repository, as it is.

    The script runs once a side in processes of its own.  Its timers (triton.testing.do_bench and do_bench_cudagraph,
    torch.utils.benchmark.Timer, timeit, aiter's run_perftest and @perftest, flashinfer's bench_gpu_time, iris's
    do_bench, a loop of its own between two readings of a clock or two events, or in a profiler) hand their closures
    over: both sides' are timed in turn, outputs and gradients are compared (base is the reference), and the script gets
    the numbers that it expects.  Ranks (--ranks, or those that a script spawns) of both sides have the same GPUs in
    turn; a sample is the slowest rank's.  What stands behind -- are arguments of the script.  An --out file that exists
    is resumed.

    Exit codes: 0 pass, 1 regression, 2 no verdict (also: the script times nothing), 3 the script cannot be run.
    """
    if given.arches and (given.ranks or 1) > 1:
        raise click.UsageError(
            "--arch executes one process a side: leave out --ranks, or `emulate` the operator's cases"
        )
    # The folder of the script, or the nearest one above it that is there: the script may be in one commit only.
    whole = given.script.absolute().parent
    repository = Repository(next(one for one in (whole, *whole.parents) if one.is_dir()))
    base, head = compared_revisions(repository, given.base, given.head)
    checkouts = two_checkouts(repository, base, head, given.out)
    request = _request(repository, checkouts, given)
    if given.arches and not given.dry_run:
        return _by_counts(request, checkouts, given)
    kind = given.device or machine_kind()
    plan = with_rounds(planned(given, pythons=pythons(given)), kind)
    file = given.out or scratch("adopt", checkouts[1], repository.root)
    if given.dry_run:
        one, two = (side.label for side in checkouts)
        click.echo(f"would run {request.path} on {one} and {two} and compare what it times, into {file}")
        return PASS
    wait_for_turn()
    console = err_console()
    try:
        if given.only_list:
            return _print_listing(request.seen(checkouts, plan, file, console), given)
        rules = policy.load(given.policy_file)
        settings = rules.settings(machine_kind=kind)
        few = min(plan.trials or settings.looks[-1], settings.looks[0] + settings.confirming)
        asked = dataclasses.replace(request, budget_trials=few)
        outcome = live.compare(checkouts, plan, rules, kind, file, console, asked.measure)
        warnings = (*filter(None, [request.warning]), *outcome.judgement.warnings)
        judgement = dataclasses.replace(outcome.judgement, warnings=warnings)
        if request.warning and judgement.verdict is Verdict.SAME and all(one.ratio is None for one in judgement.cases):
            step = "move what is to be compared into a module that it imports"
            raise NothingToCompare(f"{request.warning}; all else that it times runs the same code: {step}")
    except NothingToCompare as error:  # no verdict
        if given.as_json:
            print_json({"verdict": "CANNOT TELL", "why": str(error), "cases": []})
        else:
            click.echo(f"CANNOT TELL: {plain(error, 2000)}")
        return NO_VERDICT
    trials, rejected = outcome.file.trials, outcome.file.rejected
    code = shown(judgement, trials, rejected, given.as_json, checkouts, f"script {request.path}")
    printed = PRINTED.format(out=file, role="head")
    console.print(f"trials: {file}; what the script printed: {printed}", markup=False, soft_wrap=True)
    return code


def _by_counts(request: ScriptRequest, checkouts: Sequence[LocalCheckout], given: Given) -> int:
    """Judge and print what the script's launches execute on each target; the worst exit code."""
    rules = load_policy(given.policy_file)
    judgements = {}
    for arch in given.arches:
        try:
            judgements[arch] = scripts.compared(request, checkouts, arch, rules, pythons(given))
        except NothingToCompare as error:
            judgements[arch] = IsaJudgement(CodeVerdict.CANNOT_TELL, str(error), ())
    if given.as_json:
        print_json({arch: as_json(one) for arch, one in judgements.items()})
    for arch, one in judgements.items() if not given.as_json else ():
        click.echo(f"{arch}, counted in an emulator: no times")
        for line in (*lines(one), *(f"warning: {warning}" for warning in one.warnings)):
            click.echo(plain(line, 2000))
    codes = [one.exit_code for one in judgements.values()]
    return next((code for code in (1, 2) if code in codes), PASS)


def _print_listing(seen: SeenScript, given: Given) -> int:
    """Print what would be timed, and what not; PASS."""
    if given.as_json:
        print_json(dataclasses.asdict(seen))
        return PASS
    for closure in seen.closures:
        reason = closure.why or seen.left_out.get(closure.key, "")
        seconds = "" if closure.why else f"{closure.expected_s * 1e6:.3g} us, by {closure.timer}"
        click.echo(plain(f"{closure.key}  {'; not timed: '.join(filter(None, (seconds, reason)))}", 500))
    for warning in seen.warnings:
        click.echo(plain(f"warning: {warning}", 500))
    all_cases = "; --all-cases times what runs the same code, too" if seen.left_out and not given.all_cases else ""
    click.echo(f"{len(seen.timed)} of {len(seen.closures)} closures, about {seen.trial_s:.0f} s a trial{all_cases}")
    return PASS


def _statements(script: Path) -> str:
    """What a script says apart from comments; its bytes, if Python cannot read it."""
    text = script.read_bytes()
    try:
        return ast.dump(ast.parse(text))
    except (SyntaxError, ValueError):
        return repr(text)


def _request(repository: Repository, checkouts: Sequence[LocalCheckout], given: Given) -> ScriptRequest:
    root = repository.root.resolve()
    below = given.script.resolve().relative_to(root)
    sides = {side.role: side.path / below for side in checkouts}
    own = given.script_from == "each" or bool(given.arches) and not given.script_from
    if own and not given.arches:
        raise click.UsageError("--script-from each goes with --arch: closures are timed in turn, of one text")
    taken = given.script_from or "head"
    source = next(filter(Path.is_file, (sides["head"], sides["base"])), sides["head"]) if own else sides[taken]
    if not source.is_file():
        other = next((role for role, path in sides.items() if path.is_file()), "")
        step = f"it is in {other}: --script-from {other}" if other else "name a script of this repository"
        raise click.UsageError(f"there is no script {below} in {taken}; {step}")
    warning = ""
    if not own and len({_statements(path) for path in sides.values() if path.is_file()}) > 1:
        warning = (
            f"{below} differs between base and head: both sides run the text of {taken} (--script-from chooses), and "
            "what differs in it is not compared"
        )
        click.echo(warning, err=True)
    here = Path.cwd().resolve()
    folder = here.relative_to(root) if here.is_relative_to(root) else below.parent
    arguments = words_behind()
    paths = import_paths(root, given.paths)
    request = ScriptRequest(below, source, arguments, folder, paths, given.device or "", given.budget)
    return dataclasses.replace(request, ranks=given.ranks or 0, all_cases=given.all_cases, own=own, warning=warning)
