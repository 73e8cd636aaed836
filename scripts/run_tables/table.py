"""A table before it is Markdown or HTML."""
from typing import NamedTuple


class Table(NamedTuple):
    heads: list
    rows: list
    left: tuple = (0,)  # columns of words; the others are aligned as numbers

    def markdown(self):
        def line(cells):
            return "| " + " | ".join(cells) + " |"
        rule = "|" + "".join("---|" if column in self.left else "---:|" for column in range(len(self.heads)))
        return "\n".join([line(self.heads), rule] + [line(row) for row in self.rows])


def markdown(parts):
    """Tables and paragraphs, one after the other."""
    return "\n\n".join(part.markdown() if isinstance(part, Table) else part for part in parts)
