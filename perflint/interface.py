"""What other programs rely on: exit codes and the names of the output formats."""

CLEAN, FINDINGS, ERROR, INTERRUPTED = 0, 1, 2, 130
FORMATS = (
    "grouped",
    "full",
    "concise",
    "json",
    "json-lines",
    "azure",
    "github",
    "gitlab",
    "html",
    "junit",
    "markdown",
    "pylint",
    "rdjson",
    "sarif",
)
