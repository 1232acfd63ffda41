"""The plots of docs/benchmark: SVG, by gnuplot. Without gnuplot there are none.

Bars are medians of the rounds, with a line from the smallest to the largest; a red line is a goal. queue_jobs is blue in all of them, the raw
yardsticks are grey, and each peer has a colour of its own. The background is white, so that dark pages show the same.
"""
import math
import shutil
import subprocess
import textwrap
from statistics import median

import goals

# By the beginning of a competitor's name. Its series take the shades in turn.
COLOURS = {
    "queue_jobs": ("#08306b", "#2171b5", "#4292c6", "#6baed6", "#9ecae1", "#c6dbef"),
    "raw": ("#6b6b6b", "#a8a8a8", "#cfcfcf"),
    "NOTIFY": ("#a8a8a8",),
    "textbook": ("#e6820e", "#f7b267", "#a65407"),
    "on conflict": ("#8c6d31",),
    "graphile_worker": ("#1b8a4b", "#7cc79a"),
    "pg_boss": ("#8e5bb5", "#c3a5dc"),
    "pgq": ("#c94f7c",),
}
GOAL = "#d62728"
INK = "#333333"
WIDTH, TITLE, PANEL, LEGEND_LINE, LABELS = 1000, 46, 230, 19, 62      # pixels
SOLID, DASHED, DOTTED = "1", "(6,4)", "(1,2)"
SIDES = (0.085, 0.985)


def colours(names):
    """A colour for each name."""
    used, found = {}, {}
    for name in names:
        family = next((f for f in COLOURS if name.startswith(f)), "raw")
        shades = COLOURS[family]
        found[name] = shades[used.get(family, 0) % len(shades)]
        used[family] = used.get(family, 0) + 1
    return found


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def ticks(most):
    """Some five round numbers from 0 to the largest, and how they are written."""
    step = 10 ** math.floor(math.log10(most / 4))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if most / (step * factor) <= 6)
    values = [i * step for i in range(int(most / step) + 2)]
    unit, letter = (1e6, "M") if most >= 2e6 else (1e3, "k") if most >= 2e3 else (1, "")
    return [(v, f"{v / unit:g}{letter if v else ''}") for v in values]


def written(value):
    return f"{value / 1e6:.2g}M" if value >= 1e6 else f"{value / 1e3:.0f}k"


def draw(directory, name, title, height, script):
    """The script is of plots in places of their own: of a multiplot."""
    head = [f"set terminal svg size {WIDTH},{height} dynamic background rgb 'white' font 'Helvetica,13'",
            f"set output {quoted(str(directory / (name + '.svg')))}",
            f"set multiplot title {quoted(title)} font ',16' textcolor rgb '{INK}' noenhanced",
            f"set border 3 lc rgb '{INK}'", f"set tics textcolor rgb '{INK}' nomirror out", "set grid ytics lc rgb '#dddddd' lt 1"]
    subprocess.run(["gnuplot"], input="\n".join(head + script + ["unset multiplot", ""]), text=True, check=True)


def place(number, panels, height, legend_lines, below):
    """Margins of a panel, from the top of the picture."""
    bottom_of_all = legend_lines * LEGEND_LINE + 12
    each = (height - TITLE - bottom_of_all) / panels
    top = TITLE + number * each + 26
    bottom = TITLE + (number + 1) * each - below
    return [f"set lmargin at screen {SIDES[0]}", f"set rmargin at screen {SIDES[1]}",
            f"set tmargin at screen {1 - top / height:.4f}", f"set bmargin at screen {1 - bottom / height:.4f}"]


def legend(entries, height, columns):
    """entries: (colour, dash or None for a bar, text). At the bottom of the picture, column by column."""
    script, rows = [], math.ceil(len(entries) / columns)
    for number, (colour, dash, text) in enumerate(entries):
        x = SIDES[0] + number // rows * (SIDES[1] - SIDES[0]) / columns
        y = ((rows - number % rows) * LEGEND_LINE) / height
        if dash is None:
            half = 5 / height
            script.append(f"set object rectangle from screen {x},{y - half:.4f} to screen {x + 0.042},{y + half:.4f}"
                          f" fc rgb '{colour}' fs solid noborder")
        else:
            # Piece by piece: gnuplot takes lines of one colour for one, and the dashes of the first for those of all.
            pieces, period = {SOLID: (0.042, 1), DASHED: (0.009, 0.0165), DOTTED: (0.0012, 0.004)}[dash]
            script += [f"set arrow from screen {x + begin:.4f},{y:.4f} to screen {x + begin + pieces:.4f},{y:.4f} nohead lw 2 lc rgb '{colour}'"
                       for begin in (i * period for i in range(int(0.0421 / period) + 1)) if begin + pieces <= 0.0421]
        script.append(f"set label {quoted(text)} at screen {x + 0.05},{y:.4f} left noenhanced textcolor rgb '{INK}'")
    return script


def legend_columns(texts):
    return next(c for c in (4, 3, 2, 1) if c == 1 or max(map(len, texts)) * 7 + 60 < WIDTH * (SIDES[1] - SIDES[0]) / c)


def bars(directory, name, title, panels, goal_title="goal", unit="jobs/s", logarithmic=None):
    """panels: (title, groups, marks). groups: (label, [(competitor, samples)]); marks are goals: (number of the group, competitor or
    None for all of the group, value). logarithmic: the smallest value of the axis."""
    panels = [panel for panel in panels if any(group for _, group in panel[1])]
    if not panels or not shutil.which("gnuplot"):
        return
    names = list(dict.fromkeys(who for _, groups, _ in panels for _, group in groups for who, _ in group))
    colour = colours(names)
    entries = [(colour[who], None, who) for who in names] + ([(GOAL, SOLID, goal_title)] if any(panel[2] for panel in panels) else [])
    columns = legend_columns([text for _, _, text in entries])
    lines = math.ceil(len(entries) / columns)
    height = TITLE + len(panels) * (PANEL + LABELS) + lines * LEGEND_LINE + 12
    script = []
    for number, (panel_title, groups, marks) in enumerate(panels):
        rows, tics, spans, x = {who: [] for who in names}, [], {}, 0.0
        total = sum(len(group) + 1.2 for _, group in groups)
        for index, (label, group) in enumerate(groups):
            begin = x
            for who, samples in group:
                rows[who].append((x + 0.5, median(samples), min(samples), max(samples)))
                spans[index, who] = (x, x + 1)
                x += 1
            spans[index, None] = (begin, x)
            room = (len(group) + 1.0) / total * WIDTH * (SIDES[1] - SIDES[0]) / 7
            tics.append(f"{quoted(textwrap.fill(label, max(8, int(room)), break_long_words=False).replace('%', '%%'))} {(begin + x) / 2}")
            x += 1.2
        lowest = logarithmic or 0
        # What is far above all others would leave them no room: its bar is cut off, and says how high it is.
        tops = {who: max(row[3] for row in found) for who, found in rows.items() if found}
        yardsticks = [top for who, top in tops.items() if who.startswith("raw")]
        values = [top for who, top in tops.items() if not who.startswith("raw")] + [value for _, _, value in marks]
        if not values or max(yardsticks, default=0) < 3 * max(values):
            values += yardsticks
        script += place(number, len(panels), height, lines, LABELS)
        script += [f"set title {quoted(panel_title)} offset 0,-0.6 noenhanced textcolor rgb '{INK}'", f"set ylabel '{unit}' textcolor rgb '{INK}'",
                   f"set xrange [-0.6:{x - 0.6}]", f"set xtics ({', '.join(tics)}) scale 0 noenhanced", "unset key"]
        if logarithmic:
            script += ["set logscale y", f"set yrange [{lowest}:{max(values) * 1.5}]", "set format y '%g'", "set ytics auto"]
        else:
            places = ticks(max(values) or 1)
            highest = max(max(values) * 1.04, places[-2][0])
            script += ["unset label", f"set yrange [0:{highest}]"]
            script += [f"set label {quoted(written(row[1]))} at {row[0]},{highest * 0.97} right rotate by 90 front noenhanced font ',10' textcolor rgb 'white'"
                       for found in rows.values() for row in found if row[1] > highest]
            script += [
                       f"set ytics ({', '.join(f'{quoted(text)} {value}' for value, text in places)})"]
        commands = []
        for who, found in rows.items():
            if not found:
                continue
            block = f"$p{number}s{names.index(who)}"
            script += [f"{block} << EOD", *(" ".join(f"{max(v, lowest) if i else v}" for i, v in enumerate(row)) for row in found), "EOD"]
            commands.append(f"{block} using 1:2:(0.9) with boxes fs solid border rgb 'white' lc rgb '{colour[who]}' notitle")
            # Black on white, which is seen on dark bars, too.
            commands += [f"{block} using 1:3:(0):($4-$3) with vectors heads size graph 0.003,90 lw {width} lc rgb '{ink}' notitle"
                         for width, ink in ((3, "white"), (1.2, "black"))]
        if marks:
            script += [f"$p{number}goals << EOD"]
            for index, who, value in marks:
                if (index, who) in spans:
                    begin, end = spans[index, who]
                    script += [f"{begin - 0.25} {value}", f"{end + 0.25} {value}", ""]
            script += ["EOD"]
            commands.append(f"$p{number}goals using 1:2 with lines lw 2.5 lc rgb '{GOAL}' notitle")
        if number == len(panels) - 1:
            script += legend(entries, height, columns)
        script += ["plot " + ", \\\n  ".join(commands)]
    draw(directory, name, title, height, script)


def smooth(values, window=5):
    return [sum(values[max(0, i - window + 1):i + 1]) / len(values[max(0, i - window + 1):i + 1]) for i in range(len(values))]


def over_time(directory, results, workload, title):
    """The rate of each second, the mean of the last five; of several rounds the median, and an area from the smallest to the largest."""
    keys = [key for key in results.keys(workload) if key[3] == "jobs/s by second"]
    if not keys or not shutil.which("gnuplot"):
        return
    names = list(dict.fromkeys(key[2] for key in keys))
    cases = list(dict.fromkeys(key[1] for key in keys))
    colour = colours(names)
    script, commands, entries, most = [], [], [], 0
    for number, (_, case, who, _) in enumerate(keys):
        rounds = [smooth(rates) for rates in results.get(workload, case, who, "jobs/s by second")]
        seconds = list(zip(*rounds))
        most = max(most, max(map(max, seconds)))
        script += [f"$s{number} << EOD", *(f"{i} {median(v)} {min(v)} {max(v)}" for i, v in enumerate(seconds, 1)), "EOD"]
        dash = SOLID if case == cases[0] else DASHED
        if len(rounds) > 1:
            commands.append(f"$s{number} using 1:3:4 with filledcurves fs transparent solid 0.2 noborder lc rgb '{colour[who]}' notitle")
        commands.append(f"$s{number} using 1:2 with lines lw 2 dt {dash} lc rgb '{colour[who]}' notitle")
        entries.append((colour[who], dash, f"{who}, {case.split(',')[0]}" if len(cases) > 1 else who))
        first = results.get(workload, case, who, "jobs/s, first")
        if who.startswith("queue_jobs") and first and case == cases[-1]:
            commands.append(f"{goals.FLAT * median(first)} with lines lw 1.5 dt {DOTTED} lc rgb '{GOAL}' notitle")
    entries.append((GOAL, DOTTED, f"goals: {goals.FLAT} of the first part of a load"))
    columns = legend_columns([text for _, _, text in entries])
    lines = math.ceil(len(entries) / columns)
    height = TITLE + 400 + lines * LEGEND_LINE + 12
    places = ticks(most)
    script += place(0, 1, height, lines, LABELS) + legend(entries, height, columns)
    script += [f"set xlabel 'seconds' offset 0,0.5 textcolor rgb '{INK}'", f"set ylabel 'jobs/s' textcolor rgb '{INK}'", f"set yrange [0:{most * 1.04}]",
               f"set xrange [0:{max(len(results.get(*key)[0]) for key in keys)}]", "unset key",
               f"set ytics ({', '.join(f'{quoted(text)} {value}' for value, text in places)})", "plot " + ", \\\n  ".join(commands)]
    draw(directory, workload, title, height, script)


def groups_of(results, workload, cases, label=lambda case: case, unit="jobs/s"):
    found = [(label(case), [(who, results.get(workload, case, who, unit)) for who in results.competitors(workload, case, "")
                            if results.get(workload, case, who, unit)]) for case in cases]
    return [(name, group) for name, group in found if group]


def times(results, workload, case, competitor, factor):
    """So many times the median of what it is compared with; none if that was not measured."""
    samples = results.get(workload, case, competitor, "jobs/s")
    return [factor * median(samples)] if samples else []


def by_clients(case):
    number = next(part for part in case.split(", ") if part.endswith(" clients")).split()[0]
    return f"{number} client{'' if number == '1' else 's'}"


def enqueue(results):
    for setting, goal in goals.ENQUEUE.items():
        cases = results.cases("enqueue", f"commit {setting}")
        yield (f"synchronous_commit {setting}", groups_of(results, "enqueue", cases, by_clients),
               [(i, None, v) for i, case in enumerate(cases) for v in times(results, "enqueue", case, "raw", goal)])


def bulk(results):
    cases = results.cases("bulk")
    yield "", groups_of(results, "bulk", cases), [(i, None, v) for i, case in enumerate(cases) for v in times(results, "bulk", case, "raw", goals.BULK)]


def duplicates(results):
    for setting in ("on", "off"):
        cases = results.cases("duplicates", f"commit {setting}")
        # With synchronous_commit off there is no goal.
        yield (f"synchronous_commit {setting}", groups_of(results, "duplicates", cases, lambda case: case.split(",")[0]),
               [(i, None, v) for i, case in enumerate(cases) if setting == "on"
                for v in times(results, "duplicates", case, "raw", goals.DUPLICATES[int(case.split(" %")[0])])])


def waiting(results):
    for setting in ("on", "off"):
        cases = results.cases("waiting", f"commit {setting}")
        yield (f"synchronous_commit {setting}", groups_of(results, "waiting", cases, lambda case: ", ".join(case.split(", ")[:2]), "calls/s"),
               [(i, "queue_jobs", goal * median(results.get("waiting", case, "on conflict", "calls/s")))
                for i, case in enumerate(cases) for keys, goal in goals.UPSERTS.items() if f", {keys}" in case and (goal <= 1 or setting == "on")])


def executors(results):
    for title, wanted in (("no-op", lambda case: "UPDATE" not in case), ("one-row UPDATE", lambda case: "UPDATE" in case)):
        cases = [case for case in results.cases("executors") if wanted(case)]
        marks = []
        for i, case in enumerate(cases):
            if case in goals.NO_OP:
                marks += [(i, "queue_jobs", v) for v in times(results, "executors", "yardstick", goals.UPDATES, goals.OF_UPDATES)]
                if goals.NO_OP[case] == goals.NOTHING_KEPT:
                    marks += [(i, "queue_jobs", v) for ceiling in goals.ceilings(results)
                              for v in times(results, "executors", "yardstick", ceiling, goals.OF_CEILING)]
        yield title, groups_of(results, "executors", cases), marks


def claimants(results):
    for batch in goals.BATCHES:
        cases = results.cases("claimants", f"batch {batch},")
        yield (f"batches of {batch}", groups_of(results, "claimants", cases, by_clients),
               [(i, None, v) for i, case in enumerate(cases) for v in times(results, "claimants", case, goals.CLAIM_COMMITTED, goals.CLAIMANTS)])


def together(results):
    yield "", groups_of(results, "together", results.cases("together")), []


def size(results):
    cases = results.cases("size")
    yield ("", groups_of(results, "size", cases),
           [(i, who, v) for i, case in enumerate(cases) if i for who in results.competitors("size", case, "queue_jobs")
            for v in times(results, "size", cases[0], who, goals.FLAT)])


def latency(results):
    """Pick-up, idle and busy."""
    groups, marks = [], []
    for workload, where in (("latency", "idle server"), ("flood", "busy: beside another lane's backlog")):
        for case in results.cases(workload):
            for percentile in ("p50", "p99"):
                found = [(label, results.get(workload, case, "queue_jobs", f"ms {percentile}, {which}"))
                         for label, which in (("queue_jobs: COMMIT returned → handler starts", "COMMIT returned to handler"),
                                              ("queue_jobs: COMMIT sent → handler starts", "COMMIT sent to handler"),
                                              ("NOTIFY: there and back", "NOTIFY there and back"))]
                found = [(label, samples) for label, samples in found if samples]
                goal = goals.pick_up(results, workload, case, percentile)
                if found and goal is not None:
                    marks.append((len(groups), found[0][0], goal))
                if found:
                    groups.append((f"{percentile}, {where}", found))
    yield "", groups, marks


def batch(results):
    cases = results.cases("batch", "no-op")
    marks = [(i, f"queue_jobs, one batch with its callback{held}", v) for i, case in enumerate(cases) for held in ("", ", a snapshot held")
             for v in times(results, "batch", case, f"queue_jobs, no batch{held}", goals.FLAT)]
    yield "", groups_of(results, "batch", cases), marks


def workflow(results):
    for wanted in ("chain", "to one"):
        cases = [case for case in results.cases("workflow") if wanted in case]
        yield ("one after the other" if wanted == "chain" else "many that one waits for", groups_of(results, "workflow", cases, unit="steps/s"),
               [(i, "queue_jobs", goals.CHAIN) for i, case in enumerate(cases) if wanted == "chain"])


def slices(results):
    cases = results.cases("slices")
    yield ("", groups_of(results, "slices", cases, unit="slices/s"),
           [(i, "queue_jobs, continue_at()", goals.SLICES * median(results.get("slices", case, "queue_jobs, a job for each", "slices/s"))) for i, case in enumerate(cases)])


def draw_all(results, directory):
    for name, title, panels, goal_title in (
            ("enqueue", "Enqueue, one a transaction", enqueue, f"goal: {goals.ENQUEUE['on']} of raw, with synchronous_commit off {goals.ENQUEUE['off']}"),
            ("bulk", "Bulk enqueue", bulk, f"goal: {goals.BULK} of raw"),
            ("duplicates", "Deduplicated enqueue", duplicates, "goal: " + ", ".join(f"{goal:g}" for goal in goals.DUPLICATES.values()) + " of raw"),
            ("executors", "Executors, yardsticks, and peers' workers", executors,
             f"goals: {goals.OF_UPDATES:g} of raw UPDATE" + (f"; {goals.OF_CEILING:g} of raw DELETE" if goals.ceilings(results) else "")),
            ("claimants", "Claimants", claimants, f"goal: {goals.CLAIMANTS} of textbook, claim committed"),
            ("together", "Enqueue and drain together", together, ""),
            ("size", "With large tables", size, f"goal: {goals.FLAT} of that with 10,000 jobs")):
        bars(directory, name, title, list(panels(results)), goal_title)
    bars(directory, "waiting", "Calls that change the job of their key", list(waiting(results)),
         "goal: " + ", ".join(f"{keys}: {goal:g}" for keys, goal in goals.UPSERTS.items()) + " of ON CONFLICT DO UPDATE", unit="calls/s")
    bars(directory, "batch", "100,000 no-op jobs, in a batch and in none", list(batch(results)), f"goal: {goals.FLAT} of those of no batch")
    bars(directory, "workflow", "Steps of a workflow", list(workflow(results)), "goal", unit="steps/s")
    bars(directory, "slices", "A job in a thousand slices", list(slices(results)), f"goal: {goals.SLICES} of the separate jobs", unit="slices/s")
    bars(directory, "latency", "Pick-up: from COMMIT to the handler's first statement", list(latency(results)), "goal, from COMMIT returned",
         unit="ms", logarithmic=0.01)
    over_time(directory, results, "held", "With a snapshot held open")
    over_time(directory, results, "steady", "Steady load")
