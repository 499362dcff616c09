"""Writes the chart's entries of speech-to-text gateways from the registry into values.yaml, between its markers."""

from __future__ import annotations

from service_registry import ROOT, Image, Service, gateways, load

VALUES = ROOT / "charts/ws-ladder/values.yaml"
BEGIN = "  # BEGIN: gateways (tools/values_services.py writes them from services/services.toml)\n"
END = "  # END: gateways\n"
# Variables that are left out: the image sets the ports, because each pod has its own address.
OF_THE_IMAGE = {"PORT", "METRICS_PORT"}
ENTRY = """\
  {name}:
    # -- May be named by the plan.
    enabled: true
    # -- One line for reports.
    description: "{description}"
    # -- A key of `protocols`.
    protocol: {protocol}
    # -- Whether it keeps books for each connection (`connections`) or only sums (`totals`).
    books: {books}
    # -- Whether a worker checks its protocol before and after each trial (`around-the-load`) or never (`none`).
    protocolCheck: around-the-load
{warmup}    image:
      # -- Image of the service.
      repository: {name}
      # -- Tag; empty: the chart's appVersion.
      tag: ""
      # -- Digest (`sha256:…`); outranks the tag.
      digest: ""
    # -- Environment of the service; a ladder's `service_env` outranks it. `INFERENCE_URL` is the chart's to set.
    env:
{env}
    # -- Arguments after the image's entrypoint.
    args: []
    resources:
      # -- Memory, request and limit. CPU is the plan's `cpu.service.cpus`.
      memory: {memory}
    # -- Seconds from SIGTERM to SIGKILL.
    terminationGracePeriodSeconds: 10
"""


WARMUP = """\
    # -- At least so long it is loaded before each window, in seconds.
    warmupSeconds: {seconds:g}
"""


def entry(service: Service, image: Image) -> str:
    env = {key: value for key, value in service.env.items() if key not in OF_THE_IMAGE}
    return ENTRY.format(
        name=service.name,
        description=service.description,
        protocol=service.protocol,
        books=service.books,
        warmup=WARMUP.format(seconds=service.warmup_seconds) if service.warmup_seconds else "",
        env="\n".join(f'      {key}: "{value}"' for key, value in env.items()),
        memory=image.memory,
    )


def main() -> None:
    text = VALUES.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    entries = [entry(each, each.image) for each in gateways(load()) if each.image]
    VALUES.write_text(before + BEGIN + "".join(entries) + END + after)


if __name__ == "__main__":
    main()
