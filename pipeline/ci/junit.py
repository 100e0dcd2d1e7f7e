"""JUnit XML of a `pipeline ci` run: a suite per experiment, a case per board and one per compared figure.

A regression is a `failure`; a board or instrument that stayed broken after all retries is an `error` of type
infrastructure; retries that helped in the end are told in properties and `system-out`, and fail nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

Result = Literal["passed", "failure", "error", "skipped"]
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Case:
    """One line of the report."""

    classname: str
    name: str
    result: Result = "passed"
    message: str = ""
    kind: str = ""  # of a failure or an error
    seconds: float = 0.0
    output: str = ""


@dataclass
class Suite:
    """The cases of one experiment."""

    name: str
    cases: list[Case] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)


def write_junit(path: Path, suites: Sequence[Suite]) -> None:
    root = ElementTree.Element("testsuites", _counts([case for suite in suites for case in suite.cases]))
    for suite in suites:
        element = ElementTree.SubElement(root, "testsuite", {"name": _clean(suite.name), **_counts(suite.cases)})
        if suite.properties:
            properties = ElementTree.SubElement(element, "properties")
            for name, value in suite.properties.items():
                ElementTree.SubElement(properties, "property", {"name": name, "value": _clean(value)})
        for case in suite.cases:
            _add(element, case)
    ElementTree.indent(root)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _add(suite: ElementTree.Element, case: Case) -> None:
    attributes = {"classname": _clean(case.classname), "name": _clean(case.name), "time": f"{case.seconds:.3f}"}
    element = ElementTree.SubElement(suite, "testcase", attributes)
    if case.result != "passed":
        about = {"message": _clean(case.message.splitlines()[0] if case.message else "")}
        if case.kind:
            about["type"] = case.kind
        told = ElementTree.SubElement(element, case.result, about)
        told.text = _clean(case.message)
    if case.output:
        ElementTree.SubElement(element, "system-out").text = _clean(case.output)


def _counts(cases: Sequence[Case]) -> dict[str, str]:
    counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    numbers = {name: str(sum(case.result == result for case in cases)) for name, result in counted.items()}
    return {"tests": str(len(cases)), **numbers, "time": f"{sum(case.seconds for case in cases):.3f}"}


def _clean(text: str) -> str:
    """XML has no place for most control characters, whatever a tool may print."""
    return _NOT_XML.sub("?", text)
