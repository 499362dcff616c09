// The CPU quota of this process, from its cgroup and the cgroups above it.

import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** Mount points of the CPU controller: version 2 has one tree for all controllers, version 1 one per controller. */
const UNIFIED = ["/sys/fs/cgroup"];
const CPU_CONTROLLER = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];

/** The lowest quota that applies, in CPUs; undefined without one or when it can't be read. */
export function quota(): number | undefined {
  const groups = (read("/proc/self/cgroup") ?? "").split("\n").map((line) => line.split(":"));
  const quotaList = groups.flatMap(([, controllers = "-", ...path]) => quotas(controllers, path.join(":")));
  return quotaList.length === 0 ? undefined : Math.min(...quotaList);
}

/** The quotas of a cgroup and of those above it. */
function quotas(controllers: string, path: string): number[] {
  const roots = controllers === "" ? UNIFIED : controllers.split(",").includes("cpu") ? CPU_CONTROLLER : [];
  const root = roots.find((one) => existsSync(one));
  if (root === undefined) return [];
  // In a container the path may not exist below the mounted root; then the root is this process's cgroup.
  const own = join(root, path);
  const quotaList: number[] = [];
  for (let group = existsSync(own) ? own : root; group.startsWith(root); group = dirname(group)) {
    const one = quotaOf(group);
    if (one !== undefined) quotaList.push(one);
  }
  return quotaList;
}

/** The quota of one cgroup in CPUs; undefined without one. */
export function quotaOf(group: string): number | undefined {
  const unified = read(join(group, "cpu.max"));
  const setting = (name: string) => read(join(group, `cpu.cfs_${name}_us`));
  const [used, period] = unified === undefined ? [setting("quota"), setting("period")] : unified.split(" ");
  // Without a quota, version 2 has "max" and version 1 has -1.
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
