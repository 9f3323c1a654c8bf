import json
import shutil
from html.parser import HTMLParser

import pytest

from pfljax.report import write_comparison, write_run_report

VOID = {"meta", "img", "br", "link"}
ATTACK = "<script>alert('x')</script> & \"more\""


class Page(HTMLParser):
    """Collects the tags, references and text of a page; checks that tags balance."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.references, self.text = [], [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self.references += [v for k, v in attrs if k in ("src", "href", "data")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def check_self_contained(page, pictures):
    assert page.tags.count("img") == pictures
    assert len(page.references) == pictures
    assert all(r.startswith("data:image/png;base64,") for r in page.references)
    assert not {"script", "link", "iframe"} & set(page.tags)


@pytest.fixture(scope="module")
def reported(run_folder, tmp_path_factory):
    folder = shutil.copytree(run_folder, tmp_path_factory.mktemp("report") / "run")
    write_run_report(folder)
    return folder


def test_run_report_has_all_figures(reported):
    stems = ["accuracy_histogram", "label_distribution", "lambda_curve"]
    stems.append("learning_curves")
    for suffix, magic in ((".png", b"\x89PNG"), (".pdf", b"%PDF")):
        files = sorted((reported / "figures").glob(f"*{suffix}"))
        assert [file.stem for file in files] == stems
        assert all(file.read_bytes().startswith(magic) for file in files)


def test_run_page_is_self_contained_and_tells_the_numbers(reported):
    page = Page((reported / "report.html").read_text(encoding="utf-8"))
    check_self_contained(page, pictures=4)
    summary = json.loads((reported / "summary.json").read_text())
    for way in summary["mixture"].values():
        assert f"{100 * way['accuracy']['mean']:.2f}" in page.text
    for text in ("SuPerFed-MM", "oracle (chosen on test)", "abab", "0.10.2"):
        assert text in page.text
    assert "Best on test (not a result)" in page.text
    assert "20.0 s, the compilation in the first call included" in page.text
    for record in summary["last"]["evaluations"]:
        for name in ("mce", "ece_batchwise", "mce_batchwise", "loss"):
            assert f"{record['metrics'][name]['mean']:.3f}" in page.text
    assert (
        page.text.count("personal, after the newest broadcast") >= 3
    )  # summary, captions


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
        page = Page(path.read_text(encoding="utf-8"))
        assert "script" not in page.tags
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


def test_comparison_writes_everything(comparison_folders, tmp_path):
    text = write_comparison(comparison_folders, tmp_path)
    tables = [
        f"comparison_{name}{suffix}"
        for name in ("last", "validation", "last_calibration", "validation_calibration")
        for suffix in (".csv", "_seeds.csv", ".md", ".tex")
    ]
    figures = [
        f"figures/{name}.{suffix}"
        for name in ("bars", "curves_by_round", "curves_by_bytes")
        for suffix in ("png", "pdf")
    ]
    found = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file()}
    assert found == {*tables, *figures, "comparison.html"}
    assert text.count("| SuPerFed-MM |") == 5  # with the mixture's three
    page = Page((tmp_path / "comparison.html").read_text(encoding="utf-8"))
    check_self_contained(page, pictures=3)
    assert page.tags.count("table") == 7
    assert "oracle (chosen on test)" in page.text


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
