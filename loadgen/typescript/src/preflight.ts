// The limits of this machine, reported before a test runs into them.

import { environment } from "./machine.ts";
import { CONNECTIONS_PER_ADDRESS } from "./trial.ts";

/** Open files of a worker other than its connections. */
const OTHER_FILES = 64;
/** Source addresses of loopback that are used: 127.0.0.1 to 127.0.0.254. */
const ADDRESSES = 254;

/** The most connections that the workers can hold to a service on this machine. */
export function mostConnections(processes: number, maxConnections: number): number {
  // Node.js raises its own limit of open files to the hard one.
  const files = (environment().open_files - OTHER_FILES) * processes;
  return Math.min(maxConnections, files, CONNECTIONS_PER_ADDRESS * ADDRESSES);
}

/** Sentences about limits that may prevent that many connections. */
export function remarks(connections: number, processes: number): string[] {
  const { open_files, somaxconn } = environment();
  const sentences: string[] = [];
  const each = Math.ceil(connections / processes) + OTHER_FILES;
  if (each > open_files) {
    sentences.push(
      `a process may open ${open_files} files and ${each} are needed: raise ulimit -n or give more --processes`,
    );
  }
  if (Number(somaxconn) < 4096)
    sentences.push(`net.core.somaxconn is ${somaxconn}: a storm may overflow the backlog; set 65535`);
  return sentences;
}
