"""Pages of runs and comparisons, and the files that they leave."""

import json
import re
import shutil
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from pfljax.evaluation.over_clients import FIGURES
from pfljax.report import style, write_comparison, write_run_report
from pfljax.report.key_figures import key_figures
from pfljax.report.run_page import client_columns
from pfljax.runs.result import result

VOID = {"meta", "img", "br", "link"}
ATTACK = "<script>alert('x')</script> & \"more\""


class Page(HTMLParser):
    """Collects the tags, references and text of a page; checks that tags balance."""

    def __init__(self, path):
        super().__init__()
        assert path.stat().st_size < 5e6
        self.open, self.tags, self.references, self.text = [], [], [], ""
        self.pictures = []
        self.feed(path.read_text(encoding="utf-8"))
        self.close()
        assert self.open == []
        # Self-contained.
        assert all(r.startswith("data:image/") for r in self.references)
        assert self.tags.count("script") == 1
        assert not {"link", "iframe"} & set(self.tags)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.references += [v for k, v in attrs if k in ("src", "href", "data")]
        self.pictures += [v for k, v in attrs if k == "alt"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def rows_below(path, first_heading):
    """Cells [row][column] of the table whose first heading this is."""
    text = path.read_text("utf-8")
    table = text.partition(f">{first_heading}</th>")[2].partition("</table>")[0]
    lines = re.findall(r"<tr>(<td.*?)</tr>", table)
    return [[unescape(c) for c in re.findall(r"<td.*?>(.*?)</td>", x)] for x in lines]


def change_summary(folder, **changes):
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | changes))


@pytest.fixture(scope="module")
def reported(run_folder, tmp_path_factory):
    folder = shutil.copytree(run_folder, tmp_path_factory.mktemp("report") / "run")
    write_run_report(folder)
    return folder


def test_a_run_page_is_self_contained_and_has_the_numbers(reported, run_folder):
    page = Page(reported / "report.html")
    assert page.pictures == [
        "learning curves", "accuracy by client", "label distribution", "lambda curve",
    ]  # fmt: skip
    summary = json.loads((reported / "summary.json").read_text())
    for way in summary["mixture"].values():
        assert f"{100 * way['accuracy']['mean']:.2f}" in page.text
    assert "not a result" in page.text
    for record in summary["last"]["evaluations"][::2]:  # on test data
        for name in ("mce", "ece_batchwise", "mce_batchwise", "loss"):
            assert f"{record['metrics'][name]['mean']:.3f}" in page.text
    # It adds the page and nothing else, and the same page when written again.
    added = {p.name for p in reported.iterdir()} - {
        p.name for p in run_folder.iterdir()
    }
    assert added == {"report.html"}
    before = (reported / "report.html").read_bytes()
    write_run_report(reported)
    assert (reported / "report.html").read_bytes() == before


def test_key_figures_by_hand(make_run, tmp_path):
    folder = make_run(tmp_path / "run")
    summary = json.loads((folder / "summary.json").read_text())
    chosen = summary["chosen_on_validation"] | {"round": 8}
    change_summary(
        folder,
        chosen_on_validation=chosen,
        step_flops=1.5e6,
        parameters={"trained": 1234, "model": 56789},
    )
    environment = json.loads((folder / "environment.json").read_text())
    environment |= {"peak_bytes": int(7e8), "peak_of": "process"}
    (folder / "environment.json").write_text(json.dumps(environment))
    lines = [
        json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()
    ]
    for line in lines:
        line |= {"clock": 0.5 * line["round"], "train_staleness": line["round"] / 10}
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "metrics.jsonl").write_text(text)
    run = result(folder)
    last = 100 * np.sort(run.clients["personal/test/accuracy"][-1].astype(float))
    mixed = summary["mixture"]["chosen_on_validation"]["accuracy"]["mean"]
    values = {title: value for title, value, _ in key_figures(run)}
    assert values == {
        "Accuracy at the last round": f"{last.mean():.2f} %",
        "Worst tenth of clients": f"{last[:2].mean():.2f} %",
        "Accuracy at the round chosen on validation": f"{last.mean():.2f} %",
        "Accuracy, λ chosen on validation": f"{100 * mixed:.2f} %",
        "Best on test": "50.00 %",
        "Staleness": "2.05",
        "Virtual time": "20 s",
        "Sent up": "2.08 MB",
        "Sent down": "2.08 MB",
        "Time of training": "20.0 s",
        "FLOPs of a local step": "1.500 M",
        "Most memory": "700 MB",
        "Trained parameters": "1,234",
    }


def test_the_page_has_the_origin_of_the_numbers(reported):
    text = (reported / "report.html").read_text(encoding="utf-8")
    pairs = dict(re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', text))
    assert pairs["source"] == "drawn for a test, CC BY 4.0"
    assert pairs["sha256"] == "ab" * 32
    assert pairs["command"] == "pfljax run --algorithm &lt;this&gt;"
    assert (pairs["python"], pairs["jax"]) == ("3.11.7", "0.10.2")
    assert pairs["lr"] == "0.01"


@pytest.mark.usefixtures("undrawn")
def test_the_page_has_a_row_for_each_client(reported):
    columns = client_columns(result(reported))
    rows = rows_below(reported / "report.html", "Client")
    assert rows == [[str(c[k]) for c in columns.values()] for k in range(20)]
    with np.load(reported / "clients.npz") as arrays:
        accuracy = 100 * arrays["personal/test/accuracy"][-1].astype(float)
    shown = [float(row[5]) for row in rows]
    np.testing.assert_allclose(shown, accuracy, atol=0.0051)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_page_of_many_clients_has_the_worst(make_run, tmp_path):
    folder = make_run(tmp_path / "run", "ditto", 0, C=1000, K=100, every=20)
    write_run_report(folder)
    Page(folder / "report.html")  # of a size that a mail takes
    rows = rows_below(folder / "report.html", "Client")
    with np.load(folder / "clients.npz") as arrays:
        worst = 100 * np.sort(arrays["personal/test/accuracy"][-1])[:500]
    np.testing.assert_allclose([float(row[5]) for row in rows], worst, atol=0.0051)


@pytest.mark.usefixtures("undrawn")
def test_assumed_models_are_said_to_be_so(make_run, tmp_path):
    several = ["twonn", "htcnn_akt2:features=9"]
    folder = make_run(tmp_path / "run", "ditto", models=several, model="auto")
    write_run_report(folder)
    label = "twonn, htcnn_akt2:features=9, widths assumed"
    assert f"models {label}" in Page(folder / "report.html").text
    models = [row[1] for row in rows_below(folder / "report.html", "Client")]
    assert models[:3] == [several[0], several[1], several[0]]


@pytest.mark.usefixtures("undrawn")
def test_the_page_shows_landscapes(reported, make_run, tmp_path):
    folder = shutil.copytree(reported, tmp_path / "run")
    figure, _ = style.new_figure(4, 2)
    (folder / "figures").mkdir()
    file = folder / "figures" / "landscape_line"
    style.save_figure(figure, file, caption="Test accuracy along 11 points.")
    write_run_report(folder)
    assert "landscape line" in Page(folder / "report.html").pictures
    other = make_run(tmp_path / "other", "ditto", 0)
    write_comparison([folder, other], tmp_path / "out")
    page = Page(tmp_path / "out" / "comparison.html")
    assert "SuPerFed-MM, seed 0. Test accuracy along" in page.text


def test_hostile_texts_are_escaped(make_run, tmp_path):
    folder = make_run(tmp_path / "run", "ditto", 0, R=8, label=ATTACK)
    write_run_report(folder)
    write_comparison([folder], tmp_path / "out")
    for path in (folder / "report.html", tmp_path / "out" / "comparison.html"):
        assert ATTACK in Page(path).text


@pytest.mark.usefixtures("undrawn")
def test_one_evaluated_round_and_a_diverged_run(make_run, tmp_path):
    folder = make_run(tmp_path / "run", "fedavg", 0, R=4, C=3)
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    lines[-1]["train_loss"] = None
    for record in lines[-1]["evaluations"]:
        record["metrics"] = {"accuracy": dict.fromkeys(FIGURES)}
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    last = {"round": 4, "evaluations": lines[-1]["evaluations"]}
    change_summary(folder, last=last, chosen_on_validation=None)
    write_run_report(folder)
    assert "–" in write_comparison([folder], tmp_path / "out")


@pytest.mark.usefixtures("undrawn")
def test_a_page_begins_with_what_went_wrong(make_run, tmp_path):
    folders = [make_run(tmp_path / f"s{seed}", "ditto", seed, R=4) for seed in (0, 1)]
    stopped = {"round": 4, "by": "patience 3", "of": 9}
    change_summary(folders[0], stopped=stopped, diverged="losses are not finite")
    text = write_comparison(folders, tmp_path / "out", unfinished=[tmp_path / "s2"])
    for notice in (
        "ditto, seed 0, stopped early, after round 4 of 9, by patience 3.",
        "ditto, seed 0, has diverged: losses are not finite.",
        "There is nothing to compare with ditto, the only method.",
    ):
        assert notice in text
        assert notice in Page(tmp_path / "out" / "comparison.html").text
    folders.append(make_run(tmp_path / "of", "local", 0, R=4, dataset="other"))
    text = write_comparison(folders, tmp_path / "other")
    assert "The methods are not compared: the runs differ in dataset." in text
    assert "highest" not in text


@pytest.mark.usefixtures("undrawn")
def test_a_comparison_leaves_a_page_and_a_tidy_table(comparison_folders, tmp_path):
    write_comparison(comparison_folders, tmp_path)
    names = {p.name for p in tmp_path.rglob("*")}
    assert names == {"comparison.html", "comparison.csv"}
    page = Page(tmp_path / "comparison.html")
    assert page.pictures[:2] == ["differences", "curves by rounds"]
    assert "oracle (chosen on test)" in page.text
    table = pd.read_csv(tmp_path / "comparison.csv")
    rows = table[
        (table.method == "ditto") & table["main"] & (table.metric == "accuracy")
    ]
    rows = rows[(rows.split == "test") & (rows.clients == "all")]
    assert len(rows) == 3 * 10  # seeds, evaluations
    for seed in range(3):
        folder = next(f for f in comparison_folders if f.name == f"ditto{seed}")
        with np.load(folder / "clients.npz") as arrays:
            accuracy = arrays["personal/test/accuracy"].astype(float)
        own = rows[rows.seed == seed]
        np.testing.assert_allclose(own["mean"], accuracy.mean(1), rtol=1e-5)
        np.testing.assert_allclose(own["std"], accuracy.std(1), rtol=1e-5)


@pytest.mark.slow
def test_tables_and_figures_are_files_if_asked(comparison_folders, tmp_path):
    text = write_comparison(
        comparison_folders[::3],
        tmp_path,
        with_tables=True,
        figure_kinds=["svg"],
        verbose=True,
    )
    assert (tmp_path / "figures" / "differences.svg").exists()
    markdown = (tmp_path / "comparison.md").read_text("utf-8")
    titles = [line for line in markdown.splitlines() if line.startswith("Fairness at")]
    assert titles
    assert titles[0] in text
    latex = (tmp_path / "comparison.tex").read_text("utf-8")
    rulers = [line for line in markdown.splitlines() if line.startswith("| --- ")]
    assert latex.count(r"\begin{table}") == len(rulers) > 4


@pytest.mark.usefixtures("undrawn")
def test_unseen_clients_have_their_own_table(make_run, tmp_path):
    folder = make_run(tmp_path / "run", "ditto", 0)
    summary = json.loads((folder / "summary.json").read_text())
    evaluations = summary["last"]["evaluations"]
    mean = {"accuracy": {"mean": 0.4321, "std": 0.1}}
    unseen = evaluations[2] | {"clients": "unseen", "metrics": mean}
    last = {"round": 40, "evaluations": [*evaluations, unseen]}
    change_summary(folder, last=last)
    write_comparison([folder], tmp_path / "out")
    page = Page(tmp_path / "out" / "comparison.html")
    assert "clients: unseen" in page.text
    assert "43.21" in page.text


@pytest.mark.usefixtures("undrawn")
def test_groups_of_clients_are_columns_of_one_table(make_run, tmp_path):
    folder = make_run(tmp_path / "run", "ditto", 0)
    last = json.loads((folder / "summary.json").read_text())["last"]
    of_all = last["evaluations"][2]
    for k, group in enumerate(("domain=photo", "domain=art")):
        mean = {"accuracy": {"mean": 0.4321 + 0.1 * k, "std": 0.1}}
        last["evaluations"] += [of_all | {"clients": group, "metrics": mean}]
    change_summary(folder, last=last)
    write_comparison([folder], tmp_path / "out")
    page = Page(tmp_path / "out" / "comparison.html")
    assert "Accuracy at the last round by domain" in page.text
    for text in ("photo (%)", "art (%)", "43.21", "53.21"):
        assert text in page.text
    assert "domain=art" in (tmp_path / "out" / "comparison.csv").read_text()


@pytest.mark.usefixtures("undrawn")
def test_a_page_begins_without_the_path_of_its_data(make_run, tmp_path):
    data = {"dataset": "npz:path=/data/of/mine/rows.npz", "R": 8}
    folder = make_run(tmp_path / "run", "ditto", 0, **data)
    write_run_report(folder)
    header = (folder / "report.html").read_text("utf-8").partition("</header>")[0]
    assert "npz:path=rows.npz" in header


def test_no_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="give at least one"):
        write_comparison([], tmp_path)


@pytest.mark.slow
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
