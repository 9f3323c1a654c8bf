"""Tables, figures and an HTML page for a run folder or a comparison of run folders."""

from pfljax.report.judge import judge as judge
from pfljax.report.runs import label_of as label_of
from pfljax.report.runs import read_run as read_run
from pfljax.report.write import write_comparison as write_comparison
from pfljax.report.write import write_run_report as write_run_report
from pfljax.report.write import write_sweep_report as write_sweep_report
