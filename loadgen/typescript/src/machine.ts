// Reads the kernel's data on the machine, this process, and the service's process if it runs on this machine.
//
// CPU times come from exact clocks (getrusage, the scheduler's nanoseconds), never from sampled ticks.

import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { NS_PER_SECOND } from "./clock.ts";
import type { Environment } from "./schemas.ts";

const NS_PER_US = 1000;
const BYTES_PER_KIB = 1024;
/** TCP_LISTEN in /proc/net/tcp. */
const LISTENING = "0A";

function read(path: string): string {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return "";
  }
}

/** The value of the first `name: value` line; empty without one. */
function field(text: string, name: string): string {
  const line = text.split("\n").find((one) => one.split(":")[0]?.trim() === name);
  return line?.slice(line.indexOf(":") + 1).trim() ?? "";
}

/** The properties of the machine that affect results; those that can't be read are empty. */
export function environment(): Environment {
  const [cpuinfo, status] = [read("/proc/cpuinfo"), read("/proc/self/status")];
  const files = /^Max open files\s+\S+\s+(\S+)/m.exec(read("/proc/self/limits"));
  const net = (name: string) => read(`/proc/sys/net/${name}`).replaceAll("\t", " ");
  return {
    host: read("/proc/sys/kernel/hostname"),
    kernel: read("/proc/sys/kernel/osrelease"),
    cpu_model: field(cpuinfo, "model name"),
    cpus: cpuinfo.split("\n").filter((line) => line.startsWith("processor")).length,
    cpus_allowed: field(status, "Cpus_allowed_list"),
    memory_bytes: kibibytes(field(read("/proc/meminfo"), "MemTotal")),
    virtualised: field(cpuinfo, "flags").split(" ").includes("hypervisor"),
    congestion_control: net("ipv4/tcp_congestion_control"),
    somaxconn: net("core/somaxconn"),
    port_range: net("ipv4/ip_local_port_range"),
    tcp_rmem: net("ipv4/tcp_rmem"),
    tcp_wmem: net("ipv4/tcp_wmem"),
    open_files: Number(files?.[1] ?? 0) || 0,
  };
}

function kibibytes(text: string): number {
  return (Number(text.split(" ")[0]) || 0) * BYTES_PER_KIB;
}

/** Parses a list of CPUs such as `0-1,4`. */
export function cpuList(list: string): number[] {
  return list.split(",").flatMap((part) => {
    const [from, to] = part.split("-").map(Number);
    if (from === undefined || Number.isNaN(from) || part === "") return [];
    return Array.from({ length: (to ?? from) - from + 1 }, (_, offset) => from + offset);
  });
}

/** CPUs on which a process may run. */
export function allowedCpus(pid: number | "self"): number[] {
  return cpuList(field(read(`/proc/${pid}/status`), "Cpus_allowed_list"));
}

/** CPU time of this process since its start, in user and kernel mode, in nanoseconds. */
export function ownCpuNs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) * NS_PER_US;
}

/** Number of write system calls of this process; 0 when the kernel doesn't report it. */
export function ownWrites(): number {
  return Number(field(read("/proc/self/io"), "syscw")) || 0;
}

/** Peak resident memory of this process in bytes. */
export function peakRssBytes(): number {
  return kibibytes(field(read("/proc/self/status"), "VmHWM"));
}

/** CPU time and resident memory of another process. */
export interface Usage {
  cpuNs: number;
  rssBytes: number;
}

/** Reads the usage of a process; undefined when it has ended. */
export function usage(pid: number): Usage | undefined {
  let threads: string[];
  try {
    threads = readdirSync(`/proc/${pid}/task`);
  } catch {
    return undefined;
  }
  // The first number of schedstat is the time on a CPU in nanoseconds.
  const cpuNs = threads.reduce(
    (sum, id) => sum + (Number(read(`/proc/${pid}/task/${id}/schedstat`).split(" ")[0]) || 0),
    0,
  );
  return { cpuNs, rssBytes: kibibytes(field(read(`/proc/${pid}/status`), "VmRSS")) };
}

/** The id of the process that listens on a local port; undefined without one, or when /proc doesn't show it. */
export function listenerOf(port: number): number | undefined {
  const hex = port.toString(16).toUpperCase().padStart(4, "0");
  const inodes = ["tcp", "tcp6"]
    .flatMap((name) => read(`/proc/net/${name}`).split("\n").slice(1))
    .map((line) => line.trim().split(/\s+/))
    .filter((columns) => columns[1]?.endsWith(`:${hex}`) && columns[3] === LISTENING)
    .map((columns) => `socket:[${columns[9]}]`);
  if (inodes.length === 0) return undefined;
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map(Number)
    .find((pid) => openFiles(pid).some((link) => inodes.includes(link)));
}

function openFiles(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`).map((name) => {
      try {
        return readlinkSync(`/proc/${pid}/fd/${name}`);
      } catch {
        return "";
      }
    });
  } catch {
    return [];
  }
}

/** Converts nanoseconds to seconds. */
export function seconds(ns: number): number {
  return ns / NS_PER_SECOND;
}
