"""``plan-cgroups`` on one large YAML stream, beside libyaml alone on the same stream.

Prints ratios of wall time, measured alternately in one run, and peak memory at two sizes. The
target is 1.3 for the whole command. Memory is to grow with the result, not with the stream: the
last line compares a stream whose documents are as many but much larger.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from _run import run


DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: app-{number}
  namespace: team-{team}
  labels:
    app.kubernetes.io/name: app-{number}
    app.kubernetes.io/managed-by: Helm
  annotations:
    description: "service {number} of team {team}"
spec:
  replicas: 1
  selector:
    matchLabels:
      app.kubernetes.io/name: app-{number}
  strategy:
    type: RollingUpdate
    rollingUpdate: {{maxSurge: 1, maxUnavailable: 0}}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: app-{number}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "9090"
    spec:
      serviceAccountName: app-{number}
      securityContext:
        runAsNonRoot: true
        fsGroup: 1000
      containers:
      - name: app
        image: registry.example.com/team-{team}/app-{number}:1.{number}
        args: ["--listen=:8080", "--log-level=info"]
        ports:
        - name: http
          containerPort: 8080
        - name: metrics
          containerPort: 9090
        env:
{env}        livenessProbe:
          httpGet: {{path: /healthz, port: http}}
          initialDelaySeconds: 10
          periodSeconds: 10
        readinessProbe:
          httpGet: {{path: /ready, port: http}}
          periodSeconds: 5
        resources:
          requests:
            cpu: 100m
            memory: {request}Mi
          limits:
            memory: {limit}Mi
        volumeMounts:
        - name: config
          mountPath: /etc/app
          readOnly: true
        - name: tmp
          mountPath: /tmp
      volumes:
      - name: config
        configMap:
          name: app-{number}
      - name: tmp
        emptyDir: {{}}
"""
ENV = """\
        - name: SETTING_{index}
          value: "value {index} of {number}"
"""
BASE = """\
import sys, yaml
with open(sys.argv[1], "rb") as stream:
    for _ in yaml.load_all(stream, Loader=yaml.CSafeLoader):
        pass
"""


def deployments(count: int, env: int) -> Iterator[str]:
    """Make Deployments with `env` variables each."""
    chance = random.Random(1)
    for number in range(count):
        request = chance.choice([64, 128, 256, 512, 1024])
        yield DEPLOYMENT.format(
            number=number,
            team=number % 40,
            request=request,
            limit=request * chance.choice([1, 2, 4]),
            env="".join(ENV.format(index=index, number=number) for index in range(env)),
        )


def measure(folder: Path, pods: int, rounds: int) -> None:
    """Measure and print."""
    memqos = str(Path(sys.executable).with_name("memqos"))
    streams = {
        f"{pods // 2:,} pods": (pods // 2, 6),
        f"{pods:,} pods": (pods, 6),
        f"{pods // 2:,} pods, long env": (pods // 2, 40),
    }
    config = folder / "kubelet.yaml"
    config.write_text("memoryThrottlingFactor: 0.9\nmemoryReservationPolicy: TieredReservation\n")
    options = ["--kubelet-config", str(config), "--capacity", "memory=64Ti"]
    print(f"{'stream':<24} {'MiB':>5}  {'command':<10} {'ratio':>5}  spread       s    peak MiB")
    for name, (count, env) in streams.items():
        file = folder / "stream.yaml"
        with file.open("w", encoding="utf-8") as stream:  # a child's peak starts with ours
            stream.writelines(f"---\n{text}" for text in deployments(count, env))
        plan = [memqos, "plan-cgroups", "-f", str(file), *options, "-o"]
        cases = {
            "libyaml": [sys.executable, "-c", BASE, str(file)],
            "-o json": [*plan, "json"],
            "text": [*plan, "text"],
        }
        results = [{case: run(words) for case, words in cases.items()} for _ in range(rounds)]
        for case in cases:
            ratios = sorted(result[case][0] / result["libyaml"][0] for result in results)
            seconds = sorted(result[case][0] for result in results)
            peak = max(result[case][1] for result in results)
            print(
                f"{name:<24} {file.stat().st_size / 2**20:5.1f}  {case:<10} "
                f"{ratios[rounds // 2]:5.2f}  {ratios[0]:.2f}-{ratios[-1]:.2f} "
                f"{seconds[rounds // 2]:6.2f}  {peak / 1024:8.0f}"
            )


def main() -> None:
    """Read the options, measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=10_000, help="pods")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.n, options.rounds)


if __name__ == "__main__":
    main()
