import base64
import csv
import json
import re
import shutil
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser

import jinja2
import numpy as np
import pytest

from pfljax.report import html, style, write_comparison, write_run_report
from pfljax.report.config import shown
from pfljax.runs.config import FORMAT

VOID = {"meta", "img", "br", "link"}
STD = "accuracy_std_over_seeds"
ATTACK = "<script>alert('x')</script> & \"more\""


class Page(HTMLParser):
    """Collects the tags, references and text of a page; checks that tags balance."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.references, self.text = [], [], [], ""
        self.ids, self.pictures, self.headings = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.references += [v for k, v in attrs if k in ("src", "href", "data")]
        self.ids += [v for k, v in attrs if k == "id"]
        self.pictures += [v for k, v in attrs if k == "alt"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] == "h3":
            self.headings.append(data)


def check_self_contained(page, pictures):
    assert page.tags.count("img") == len(page.pictures) == pictures
    places = [r for r in page.references if r.startswith("#")]
    assert [place[1:] for place in places] == page.ids  # the table of contents
    inside = [r for r in page.references if r not in places]
    assert len(inside) == pictures
    assert all(r.startswith("data:image/png;base64,") for r in inside)
    assert page.tags.count("script") == 1
    assert not {"link", "iframe"} & set(page.tags)


def read_page(path):
    assert path.stat().st_size < 5e6
    return Page(path.read_text(encoding="utf-8"))


def cards_of(path):
    """The key figures of a page: title -> (value, what it says of it)."""
    card = r'<dt>(.*?)</dt><dd class="value">(.*?)</dd><dd class="note">(.*?)</dd>'
    told = re.findall(card, path.read_text(encoding="utf-8"))
    return {title: (value, note.replace("&nbsp;", " ")) for title, value, note in told}


def rows_below(page_text, first_heading):
    """Cells [row][column] of the table whose first heading this is."""
    table = page_text.partition(f">{first_heading}</th>")[2].partition("</table>")[0]
    lines = re.findall(r"<tr>(<td.*?)</tr>", table)
    return [[unescape(c) for c in re.findall(r"<td.*?>(.*?)</td>", x)] for x in lines]


@pytest.fixture(scope="module")
def reported(run_folder, tmp_path_factory):
    folder = shutil.copytree(run_folder, tmp_path_factory.mktemp("report") / "run")
    write_run_report(folder)
    return folder


def test_run_report_has_all_figures(reported):
    stems = ["accuracy_by_client", "accuracy_histogram", "label_distribution"]
    stems += ["lambda_curve", "learning_curves"]
    for suffix, magic in ((".png", b"\x89PNG"), (".pdf", b"%PDF")):
        files = sorted((reported / "figures").glob(f"*{suffix}"))
        assert [file.stem for file in files] == stems
        assert all(file.read_bytes().startswith(magic) for file in files)


def test_run_page_is_self_contained_and_tells_the_numbers(reported):
    page = read_page(reported / "report.html")
    check_self_contained(page, pictures=5)
    summary = json.loads((reported / "summary.json").read_text())
    for way in summary["mixture"].values():
        assert f"{100 * way['accuracy']['mean']:.2f}" in page.text
    for text in ("SuPerFed-MM", "oracle (chosen on test)"):
        assert text in page.text
    assert "Best on test (not a result)" in page.text
    for title in ("Fairness over clients at the last round.", "To a target."):
        assert title in page.text
    for record in summary["last"]["evaluations"]:
        for name in ("mce", "ece_batchwise", "mce_batchwise", "loss"):
            assert f"{record['metrics'][name]['mean']:.3f}" in page.text
    assert (
        page.text.count("personal, after the newest broadcast") >= 3
    )  # summary, captions


@pytest.mark.usefixtures("undrawn")
def test_the_page_begins_with_the_key_figures(make_run, tmp_path):
    folder = make_run(tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    chosen = summary["chosen_on_validation"] | {"round": 8}
    summary |= {"worse_than_local": 0.15, "chosen_on_validation": chosen}
    summary["step_flops"] = {"products": 1.5e6, "xla": 2e6}
    (folder / "summary.json").write_text(json.dumps(summary))
    with open(folder / "timing.jsonl", "a") as timing:
        for held in (3e8, 7e8, 5e8):
            line = {"round": 40, "peak_bytes": int(held), "peak_of": "process"}
            timing.write(f"{json.dumps(line)}\n")
    write_run_report(folder)
    with np.load(folder / "per_client.npz") as arrays:
        last = 100 * np.sort(arrays["personal/test/accuracy"][-1].astype(float))
        server = 100 * arrays["server/test/accuracy"][-1].astype(float).mean()
    cards = cards_of(folder / "report.html")
    moment = "personal, after the newest broadcast"
    told = f"round 40, {moment}; server: {server:.2f} %"
    assert cards["Accuracy, last round"] == (f"{last.mean():.2f} %", told)
    value, told = cards["Worst tenth of clients"]
    assert value == f"{last[:2].mean():.2f} %"
    assert f"standard deviation {last.std():.2f} points, least {last[0]:.2f} %" in told
    assert f"round 8, {moment}" in cards["Accuracy, round chosen on validation"][1]
    mixed = summary["mixture"]["chosen_on_validation"]["accuracy"]["mean"]
    assert cards["Accuracy, λ chosen on validation"][0] == f"{100 * mixed:.2f} %"
    assert cards["Clients worse off than with local training"][0] == "15.00 %"
    sent = "2.08 MB", "by all clients; 0.010 MB a client and round"
    assert cards["Sent up"] == cards["Sent down"] == sent
    spent = "20.0 s", "of the rounds alone: evaluations are apart"
    assert cards["Time of training"] == spent
    value, told = cards["FLOPs of a local step"]
    assert value == "1.500 M"
    assert "one step on the loss 2.000 by XLA" in told
    value, told = cards["Most memory"]
    assert value == "700 MB"
    assert told == "of the process, since it began"


def test_the_page_has_all_that_the_folder_says_of_its_origin(reported):
    told = (reported / "report.html").read_text(encoding="utf-8")
    pairs = dict(re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', told))
    assert pairs["source"] == "drawn for a test, CC BY 4.0"
    assert pairs["sha256"] == "ab" * 32
    assert pairs["command"] == "pfljax run --algorithm &lt;this&gt;"
    assert (pairs["python"], pairs["jax"]) == ("3.11.7", "0.10.2")
    assert (pairs["devices"], pairs["width"]) == ("2 × cpu: cpu", "7")
    config = json.loads((reported / "config.json").read_text())
    assert pairs["lr"] == "0.01"
    assert pairs["out"] == config["out"]


@pytest.mark.usefixtures("undrawn")
def test_assumed_models_are_said_to_be_so_wherever_a_page_names_them(
    make_run, tmp_path
):
    several = ["twonn", "htcnn_akt2:features=9"]
    label = "twonn, htcnn_akt2:features=9, widths assumed"
    one, other = (
        make_run(tmp_path / name, algorithm=name, models=models)
        for name, models in (("ditto", several), ("local", ["htcnn_yi"]))
    )
    executor = {"width": 7, "model": ",".join(several)}
    (one / "executor.json").write_text(json.dumps(executor))
    write_run_report(one)
    told = (one / "report.html").read_text(encoding="utf-8")
    assert f"models {label}" in Page(told).text  # below the title
    pairs = re.findall(r'<th scope="row">(models?)</th><td>(.*?)</td>', told)
    assert ("models", label) in pairs
    assert ("model", label) in pairs
    models = [row[1] for row in rows_below(told, "Client")]
    assert models[:3] == [several[0], several[1], several[0]]
    write_run_report(other)
    of_group = rows_below((other / "report.html").read_text("utf-8"), "Client")
    assert [row[1] for row in of_group[3:6]] == ["htcnn_yi4", "htcnn_yi5", "htcnn_yi1"]
    assert shown("proxy", "htcnn_akt4") == "htcnn_akt4, widths assumed"
    write_comparison([one, other], tmp_path / "both")
    both = (tmp_path / "both" / "comparison.html").read_text(encoding="utf-8")
    assert label in both
    assert "htcnn_yi, widths assumed" not in both


FEW = {
    "format": FORMAT, "dataset": "digits", "partition": "iid", "rounds": 8, "seed": 0,
}  # fmt: skip


@pytest.mark.usefixtures("undrawn")
def test_settings_in_groups_are_tables_of_their_own(make_run, tmp_path):
    folders = []
    for lam in (0.5, 2.0):
        folders.append(make_run(tmp_path / f"lam{lam}", "ditto", 0, R=8))
        config = json.dumps(FEW | {"algorithm": f"ditto:lam={lam}"})
        (folders[-1] / "config.json").write_text(config)
    write_run_report(folders[0])
    write_comparison(folders, tmp_path / "out")
    told = (folders[0] / "report.html").read_text("utf-8")
    config = told.partition("All settings")[2].partition("</details>")[0]
    titles = re.findall(r"<h3>(.*?)</h3>", config)
    assert titles == ["Data", "Participation", "Output", "Method"]
    method = config.partition("<h3>Method</h3>")[2].partition("</table>")[0]
    pairs = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', method)
    assert pairs == [("algorithm", "ditto:lam=0.5")]
    told = (tmp_path / "out" / "comparison.html").read_text("utf-8")
    differing = [[row[0], row[1]] for row in rows_below(told, "algorithm")]
    assert differing == [
        ["ditto (lam=0.5)", "ditto:lam=0.5"],
        ["ditto (lam=2.0)", "ditto:lam=2.0"],
    ]
    shared = told.partition("Settings that all runs share")[2]
    names = re.findall(r'<th scope="row">(.*?)</th>', shared)
    assert names == ["dataset", "partition", "rounds"]


def test_a_template_without_its_content_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="is undefined"):
        html.render("run.html.j2", title="Half", facts=[])


def test_the_command_reads_and_writes_without_jax(comparison_folders, tmp_path):
    code = (
        "import sys; from pfljax.cli.main import main; main(); "
        "heavy = ('jax', 'jaxlib', 'flax', 'optax', 'orbax', 'chex'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    folders = map(str, comparison_folders[:2])
    command = [sys.executable, "-c", code, "report", *folders, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stderr
    assert (tmp_path / "comparison.html").exists()


def test_the_page_has_a_row_for_each_client(reported):
    rows = rows_below((reported / "report.html").read_text("utf-8"), "Client")
    with np.load(reported / "per_client.npz") as arrays:
        for k, (client, train, test, rounds, classes, *accuracies) in enumerate(rows):
            assert (int(client), int(classes)) == (k, 2)
            assert int(train) == arrays["train_size"][k]
            assert int(test) == arrays["test_size"][k]
            assert int(rounds) == arrays["participations"][k]
            for model, told in zip(("personal", "server"), accuracies, strict=True):
                exact = arrays[f"{model}/test/accuracy"][-1, k]
                assert float(told) == pytest.approx(100 * exact, abs=0.0051)
    assert len(rows) == 20


@pytest.mark.usefixtures("undrawn")
def test_of_many_clients_the_worst_have_a_row(make_run, tmp_path):
    folder = make_run(tmp_path / "run", "ditto", 0, C=5000, K=100, every=20)
    write_run_report(folder)
    page = read_page(folder / "report.html")  # of a size that a mail takes
    assert "The 500 clients of least accuracy, of 5000" in page.text
    rows = rows_below((folder / "report.html").read_text("utf-8"), "Client")
    with np.load(folder / "per_client.npz") as arrays:
        worst = np.sort(arrays["personal/test/accuracy"][-1])[:500]
    shown = [float(row[5]) for row in rows]
    np.testing.assert_allclose(shown, 100 * worst, atol=0.0051)


def test_the_page_shows_whole_landscapes(reported, tmp_path):
    folder = shutil.copytree(reported, tmp_path / "run")
    assert "landscape" not in read_page(folder / "report.html").ids
    figure, _ = style.new_figure(4, 2)
    png = style.save_figure(figure, folder / "figures" / "landscape_line")
    (folder / "figures" / "landscape_cut.png").write_bytes(png[:-10])
    write_run_report(folder)
    page = read_page(folder / "report.html")
    check_self_contained(page, pictures=6)
    assert "landscape" in page.ids
    assert [p for p in page.pictures if "landscape" in p] == ["landscape line"]
    assert base64.b64encode(png).decode() in (folder / "report.html").read_text()


def test_report_is_the_same_when_written_again(reported):
    kept = {p: p.read_bytes() for p in reported.rglob("*") if p.is_file()}
    write_run_report(reported)
    assert kept == {p: p.read_bytes() for p in reported.rglob("*") if p.is_file()}


def test_hostile_texts_are_escaped(make_run, tmp_path):
    folder = make_run(
        tmp_path / "run", "ditto", 0, R=8, label=ATTACK, **{ATTACK: ATTACK}
    )
    write_run_report(folder)
    write_comparison([folder], tmp_path / "out")
    for path in (folder / "report.html", tmp_path / "out" / "comparison.html"):
        page = read_page(path)
        assert page.tags.count("script") == 1  # the page's own
        assert ATTACK in page.text


def test_one_evaluated_round_and_a_diverged_run(make_run, tmp_path):
    folder = make_run(tmp_path / "run", "fedavg", 0, R=4, C=3)
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").open()]
    lines[-1]["train_loss"] = float("nan")
    for record in lines[-1]["evaluations"]:
        record["metrics"] = {"accuracy": None}
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    summary = json.loads((folder / "summary.json").read_text())
    summary["last"]["evaluations"] = lines[-1]["evaluations"]
    (folder / "summary.json").write_text(json.dumps(summary))
    write_run_report(folder)
    assert "–" in write_comparison([folder], tmp_path / "out")


def test_a_page_says_first_that_runs_ended_early(make_run, tmp_path):
    folders = [make_run(tmp_path / f"s{seed}", "ditto", seed, R=4) for seed in (0, 1)]
    for folder in folders:
        summary = json.loads((folder / "summary.json").read_text())
        summary["stopped"] = {"round": 4, "by": "patience 3", "of": 9}
        summary |= {"diverged": "losses are not finite"} if folder.name == "s1" else {}
        (folder / "summary.json").write_text(json.dumps(summary))
    write_run_report(folders[1])
    stopped = "stopped early, after round 4 of 9, by patience 3."
    sentences = [stopped, "has diverged: losses are not finite."]
    header = (folders[1] / "report.html").read_text("utf-8").partition("</header>")[0]
    assert notices_in(header) == [f"This run {sentence}" for sentence in sentences]
    folders.append(make_run(tmp_path / "other", "local", 0, R=8))
    text = write_comparison(folders, tmp_path / "out", unfinished=[tmp_path / "s2"])
    page = (tmp_path / "out" / "comparison.html").read_text("utf-8")
    told = notices_in(page.partition("</header>")[0])
    assert told == [
        f"ditto, seeds 0, 1: {stopped}",
        f"ditto, seed 1: {sentences[1]}",
        "Not all runs have as many rounds: 4, 8.",
        f"Not finished, and left out: {tmp_path / 's2'}.",
    ]
    assert text.startswith(f"ditto, seeds 0, 1: {stopped}\n")


@pytest.mark.usefixtures("undrawn")
def test_a_comparison_says_that_nothing_is_compared(make_run, tmp_path):
    folders = [make_run(tmp_path / f"s{seed}", "ditto", seed, R=4) for seed in (0, 1)]
    alone = write_comparison(folders, tmp_path / "alone")
    assert alone.startswith("Nothing is compared: ditto is the only method.\n")
    folders.append(make_run(tmp_path / "of", "local", 0, R=4, dataset="other"))
    text = write_comparison(folders, tmp_path / "of_others")
    assert text.startswith("Not compared: the runs differ in dataset.\n")


def notices_in(page_text):
    return [unescape(x) for x in re.findall(r'<p class="notice">(.*?)</p>', page_text)]


def test_a_comparison_shows_each_methods_first_landscapes(make_run, tmp_path):
    folders = [
        make_run(tmp_path / f"{method}-{seed}", method, seed, R=4)
        for method in ("fedavg", "ditto")
        for seed in (0, 1)
    ]
    for folder in folders[1:]:  # the first of fedavg has none
        figure, _ = style.new_figure(2, 2)
        (folder / "figures").mkdir(exist_ok=True)
        style.save_figure(figure, folder / "figures" / "landscape_line")
    write_comparison(folders, tmp_path / "out")
    page = read_page(tmp_path / "out" / "comparison.html")
    assert "landscapes" in page.ids
    for method, seed in (("fedavg", 1), ("ditto", 0)):
        assert f"{method}, seed {seed}. Test accuracy along" in page.text
    assert page.text.count("Test accuracy along the straight line") == 2


def test_comparison_writes_everything(comparison_folders, tmp_path):
    text = write_comparison(comparison_folders, tmp_path)
    tables = [
        f"comparison_{name}{suffix}"
        for name in (
            "last",
            "validation",
            "last_calibration",
            "validation_calibration",
            "last_fairness",
            "validation_fairness",
            "target",
        )
        for suffix in (".csv", "_seeds.csv", ".md", ".tex", "_long.tex")
    ]
    figures = [
        f"figures/{name}.{suffix}"
        for name in (
            "bars",
            "curves_by_round",
            "curves_by_bytes",
            "accuracy_over_clients",
        )
        for suffix in ("png", "pdf")
    ]
    found = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    pairs = {f"comparison_paired.{suffix}" for suffix in ("csv", "md", "tex")}
    assert found == {*tables, *figures, *pairs, "comparison.html"}
    with open(tmp_path / "comparison_paired.csv", newline="") as file:
        compared = list(csv.DictReader(file))
    assert [row["seeds"] for row in compared] == ["0 1 2"] * 7
    assert float(compared[0]["p_holm"]) >= float(compared[0]["p"])
    in_words = (tmp_path / "comparison_paired.md").read_text("utf-8")
    assert sum(line.startswith("- ") for line in in_words.splitlines()) == 7
    answer, _, table = in_words.partition("\nWhich is better")
    assert text.startswith(answer)
    assert text.endswith(table)
    assert all(f"- {row['words']}\n" in in_words for row in compared)
    # By accuracy and fairness with the mixture's four, to a target, against four; the
    # tables of the round chosen on validation, here the last one, are not repeated.
    rows = 5 + 5 + 1 + 4
    assert text.count("| SuPerFed-MM |") == rows
    page = read_page(tmp_path / "comparison.html")
    check_self_contained(page, pictures=4)
    groups = ["Data", "Method", "Training", "Participation"]
    assert sorted(set(groups) & set(page.headings)) == sorted(groups)
    config = 1 + len(groups)  # what differs, and what all runs share
    assert page.tags.count("table") == 5 + config + 3  # and of provenance
    assert page.tags.count("li") == 7 + len(page.ids)  # each comparison in words
    assert "oracle (chosen on test)" in page.text
    assert page.ids[:3] == ["answer", "summary", "significance"]
    against = "SuPerFed-MM <small>against ditto</small>"
    assert against in (tmp_path / "comparison.html").read_text("utf-8")


@pytest.mark.usefixtures("undrawn")
def test_the_accuracy_stands_beside_the_name(comparison_folders, reported, tmp_path):
    write_comparison(comparison_folders[:1], tmp_path)
    (row,) = rows_below((tmp_path / "comparison.html").read_text("utf-8"), "Method")
    with np.load(comparison_folders[0] / "per_client.npz") as arrays:
        mean = 100 * arrays["personal/test/accuracy"][-1].mean()
    name = "local only <small>personal, after the newest broadcast</small>"
    assert row[:2] == [name, f"{mean:.2f}"]
    page = (reported / "report.html").read_text("utf-8")
    judged = [row[0].split()[:2] for row in rows_below(page, "Model and rows")]
    assert judged[0] == ["personal,", "test"]
    assert [rows for _, rows in judged] == sorted(rows for _, rows in judged)


@pytest.mark.usefixtures("undrawn")
def test_equal_records_of_a_run_are_one_row(make_run, tmp_path):
    write_run_report(make_run(tmp_path / "run", "fedavg", 0, R=8))
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    rows = [row[0] for row in rows_below(page, "Model and rows")]
    assert [row.partition(" <")[0] for row in rows] == [
        "server = personal, test",
        "server + 5 local steps, test",
        "server = personal, validation",
    ]


@pytest.mark.usefixtures("undrawn")
def test_a_page_begins_without_the_path_of_its_rows(make_run, tmp_path):
    data = {"dataset": "npz:path=/rows/of/mine/rows.npz", "R": 8}
    folder = make_run(tmp_path / "run", "ditto", 0, **data)
    write_run_report(folder)
    write_comparison([folder], tmp_path / "both")
    for path in (folder / "report.html", tmp_path / "both" / "comparison.html"):
        header = path.read_text("utf-8").partition("</header>")[0]
        assert "npz:path=rows.npz" in header
        assert "/rows/of/mine" not in header


@pytest.mark.usefixtures("undrawn")
def test_a_comparison_begins_with_the_best(comparison_folders, tmp_path):
    write_comparison(comparison_folders, tmp_path)
    cards = cards_of(tmp_path / "comparison.html")
    with open(tmp_path / "comparison_last.csv", newline="") as file:
        rows = [r for r in csv.DictReader(file) if "oracle" not in r["model_judged"]]
    best = max(rows, key=lambda row: float(row["accuracy_mean"]))
    value, who = cards["Accuracy (%), mean ± std over seeds"]
    mean, std = (100 * float(best[k]) for k in ("accuracy_mean", STD))
    assert value == f"{mean:.2f} ± {std:.2f}"
    told = f"{best['method']}: {best['model_judged']}"
    assert who == f"{told}; 4 more cannot be told from it"
    least = min(float(row["ece_mean"]) for row in rows if row["ece_mean"])
    assert cards["ECE"][0] == f"{least:.3f}"


@pytest.mark.usefixtures("undrawn")
def test_nobody_is_best_between_two_problems(make_run, tmp_path):
    folders = [
        make_run(tmp_path / name, algorithm=name, dataset=dataset)
        for name, dataset in (("fedavg", "digits"), ("ditto", "mnist"))
    ]
    write_comparison(folders, tmp_path / "out")
    page = read_page(tmp_path / "out" / "comparison.html")
    assert "Nothing is marked as the best" in page.text
    assert "dl" not in page.tags


@pytest.mark.usefixtures("undrawn")
def test_unseen_clients_have_their_own_table(make_run, tmp_path):
    folder = make_run(tmp_path / "run", "ditto", 0)
    summary = json.loads((folder / "summary.json").read_text())
    evaluations = summary["last"]["evaluations"]
    mean = {"accuracy": {"mean": 0.4321, "std": 0.1}}
    unseen = evaluations[2] | {"clients": "unseen", "metrics": mean}
    (folder / "summary.json").write_text(
        json.dumps(summary | {"last": {"round": 40, "evaluations": [unseen]}})
    )
    write_comparison([folder], tmp_path / "out")
    table = (tmp_path / "out" / "comparison_last_unseen.md").read_text()
    assert "clients: unseen" in table
    assert "43.21" in table


def test_no_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="give at least one"):
        write_comparison([], tmp_path)


def test_a_sweep_s_page_shows_its_commands_as_code():
    key = "Hold it against `pfljax compare a<b`, or `--over`."
    paired = {"key": key, "lines": (), "more": (), "table": html.grid([], [])}
    page = html.render(
        "sweep.html.j2",
        title="Sweep",
        facts=(),
        notices=(),
        key_figures=[],
        paired=paired | {"note": ""},
        tables=[html.grid(["one"], [["–"], ["–"]])],
        curves=[],
        swept=html.grid([], []),
        settings={},
    )
    assert "against <code>pfljax compare a&lt;b</code>, or <code>--over</code>." in page
    assert '<th scope="col" class="number">one</th>' in page  # set right, as numbers


def test_groups_of_clients_are_counted(reported):
    page = (reported / "report.html").read_text("utf-8")
    rows = rows_below(page, "Model and rows")
    assert "all of 20 clients, after the newest broadcast" in rows[0][0]
