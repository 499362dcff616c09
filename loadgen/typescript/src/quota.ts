// The CPU quota of this process: what its cgroup, and those above it, allow.

import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** Where the controller is mounted, by its version: one tree for all, or one per controller. */
const UNIFIED = ["/sys/fs/cgroup"];
const OF_CPU = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];

/** CPUs of the tightest quota in force; nothing where there is none or it can't be seen. */
export function quota(): number | undefined {
  const groups = (read("/proc/self/cgroup") ?? "").split("\n").map((line) => line.split(":"));
  const found = groups.flatMap(([, controllers = "-", ...path]) => quotas(controllers, path.join(":")));
  return found.length === 0 ? undefined : Math.min(...found);
}

/** The quotas of a group and of those above it. */
function quotas(controllers: string, path: string): number[] {
  const roots = controllers === "" ? UNIFIED : controllers.split(",").includes("cpu") ? OF_CPU : [];
  const root = roots.find((one) => existsSync(one));
  if (root === undefined) return [];
  // In a container the path may not exist below the root that is mounted: then the root itself is ours.
  const own = join(root, path);
  const found: number[] = [];
  for (let group = existsSync(own) ? own : root; group.startsWith(root); group = dirname(group)) {
    const one = quotaOf(group);
    if (one !== undefined) found.push(one);
  }
  return found;
}

/** CPUs of one group's own quota; nothing where it has none. */
export function quotaOf(group: string): number | undefined {
  const unified = read(join(group, "cpu.max"));
  const of = (name: string) => read(join(group, `cpu.cfs_${name}_us`));
  const [used, period] = unified === undefined ? [of("quota"), of("period")] : unified.split(" ");
  // Version 2 says "max" and version 1 says -1 where there is none.
  const share = Number(used) / Number(period);
  return share > 0 && Number.isFinite(share) ? share : undefined;
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return undefined;
  }
}
