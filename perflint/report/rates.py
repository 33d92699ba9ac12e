"""Which findings run often enough to be reported."""

from __future__ import annotations

from collections.abc import Iterator

from perflint.rule.finding import Rate
from perflint.run.result import Result
from perflint.source.words import counted

_RATES = {
    "per-parameter": Rate.PER_PARAMETER,
    "per-sample": Rate.PER_SAMPLE,
    "per-step": Rate.PER_STEP,
    "per-interval": Rate.PER_INTERVAL,
    "per-epoch": Rate.PER_EPOCH,
}


def narrow(result: Result, least: str) -> Iterator[str]:
    """Leave the findings in a result whose code runs as often as `least` says or more often; what a reader should know."""
    rank = _RATES[least].rank
    dropped = result.keep(lambda _, finding: finding.rate.rank <= rank)
    if dropped:
        often = least.replace("-", " ")
        yield f"{counted(dropped, 'finding')} left out: their code runs less often than {often}, or it is not known how often."
