"""Reads finished runs; writes their pages, comparisons and tables."""

from pfljax.report.evaluate import evaluate as evaluate
from pfljax.report.sweeps import sweep_figures as sweep_figures
from pfljax.report.write import accuracy_table as accuracy_table
from pfljax.report.write import write_comparison as write_comparison
from pfljax.report.write import write_run_report as write_run_report
