"""Raw results of benchmarks (docs/runs/*.json; schema: docs/runs/README.md) as tables, for documents (render_docs.py) and for the report (report.py)."""
from .cells import BUSY
from .profiles import profile_table
from .results import ROOT, BadResult, load, load_all, machine_line, name_of, varying
from .summaries import aims_table, beside_table, figures_table, steps_table, targets, targets_table, verdict_counts
from .table import Table, markdown
from .whole import table, tables_of, work_of, work_table

__all__ = ["BUSY", "ROOT", "BadResult", "Table", "aims_table", "beside_table", "figures_table", "load", "load_all", "machine_line", "markdown", "name_of",
           "profile_table", "steps_table", "table", "tables_of", "targets", "targets_table", "varying", "verdict_counts", "work_of", "work_table"]
