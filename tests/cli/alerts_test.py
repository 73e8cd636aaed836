#!/usr/bin/env python3
"""The alert rules of share/prometheus speak of metrics, labels and codes that gnstord and the gateways export, and each alert fires when it
should (promtool, where it is installed). Arguments: the gnstor and gnstord programs.
"""
import pathlib
import re
import shutil
import subprocess
import unittest

from programs import Programs, count, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "share" / "prometheus" / "gnstor.rules.yml"
TESTS = ROOT / "tests" / "cli" / "alerts_tests.yml"
GATEWAY = ROOT / "src" / "daemon" / "http" / "gateway_api.cpp"
SELECTOR = re.compile(r"\b(gnstor_[a-z_]+)(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
OF_PROMETHEUS = {"job", "instance"}  # labels that Prometheus adds


def without_comments(path):
    return "\n".join(line for line in path.read_text().split("\n") if not line.lstrip().startswith("#"))


def exported(text):
    """Of each metric: the values of each label."""
    metrics = {}
    for line in text.split("\n"):
        if line and not line.startswith("#"):
            name, labels = re.match(r"(\w+)(?:\{(.*)\})? \S+$", line).groups()
            known = metrics.setdefault(name, {})
            for label, _, value in LABEL.findall(labels or ""):
                known.setdefault(label, set()).add(value)
    return metrics


def wrong(text, metrics):
    """What the text speaks of and nobody exports."""
    for name, labels in SELECTOR.findall(text):
        if name not in metrics:
            yield f"no metric {name}"
            continue
        for label, how, value in LABEL.findall(labels):
            if label in OF_PROMETHEUS:
                continue
            if label not in metrics[name]:
                yield f"no label {label} of {name}"
            # Which of the routes and statuses a program has met is chance.
            elif how in ("=", "!=") and name == "gnstor_health" and value not in metrics[name][label]:
                yield f"no {name} with {label} {value}"
    for code in re.findall(r"\bGNS_[A-Z_]+", text):
        if code not in metrics["gnstor_health"]["code"]:
            yield f"no code {code}"


class Alerts(Programs):
    def metrics(self):
        self.cli("up", "--ssds", "2", "--capacity", "64MiB")
        text = self.ask_http("/metrics")
        metrics = exported(text)
        # A gateway needs an array of other processes: its names are those of its source, whose answers gateway_api_test checks.
        for name in re.findall(r'"(gnstor_gateway_[a-z_]+)", "(?:gauge|counter)"', GATEWAY.read_text()):
            metrics[name] = {}
        return metrics

    def ask_http(self, target):
        done = subprocess.run(["curl", "-s", "--fail", "--unix-socket", str(self.dir / "gnstord.sock"), f"http://gnstord{target}"],
                              capture_output=True, check=True, timeout=60)
        return done.stdout.decode()

    def test_the_rules_and_their_tests_speak_of_what_is_exported(self):
        metrics = self.metrics()
        for sample in ("gnstor_healthy == 1", 'gnstor_health{kind="x"}', 'gnstor_health{code="GNS_HUNGRY"}', "see GNS_HUNGRY", "gnstor_gateway_writeable"):
            self.assertTrue(list(wrong(sample, metrics)), sample)
        for path in (RULES, TESTS):
            text = without_comments(path)
            self.assertEqual(list(wrong(text, metrics)), [], path.name)
            count("names", len(SELECTOR.findall(text)))

    def test_every_alert_has_a_test_and_says_what_to_do(self):
        rules = without_comments(RULES)
        alerts = re.findall(r"- alert: (\w+)", rules)
        self.assertEqual(len(alerts), len(set(alerts)))
        for rule in rules.split("- alert: ")[1:]:
            for part in ("expr:", "severity:", "summary:", "description:"):
                self.assertIn(part, rule)
        tested = without_comments(TESTS)
        for alert in alerts:
            quiet = re.findall(rf"alertname: {alert}\}}", tested)
            fires = re.findall(rf'alertname="{alert}"', tested)
            self.assertTrue(quiet and fires, f"{alert} has no test that it fires, or none that it does not")
        count("alerts", len(alerts))

    def test_promtool_accepts_the_rules_and_their_tests(self):
        promtool = shutil.which("promtool")
        if promtool is None:
            # A line of its own: ./run test shows those that begin so.
            print(f"\nskipped: {self.id()}: promtool is not installed (Debian: prometheus)", flush=True)
            return
        for words in (("check", "rules", RULES), ("test", "rules", TESTS)):
            done = subprocess.run([promtool, *words], capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    main("cli_alerts")
