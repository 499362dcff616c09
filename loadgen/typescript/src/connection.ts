// One connection: its handshake (docs/PROTOCOL.md), its books, and the reason for which it fails or closes.

import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import WebSocket from "ws";
import { FIRST_SEQUENCE } from "./payload.ts";
import type { WorkerBook } from "./schemas.ts";

const HANDSHAKE_MS = 15_000;
const CLOSE_MS = 2_000;
const LARGEST_MESSAGE_BYTES = 1 << 20;
const HELLO = '{"p":{"client_version":"wse-ts-bench/0.1.0","protocol_version":1},"t":"client_hello"}';

/** The address, query and token of connections. */
export interface Target {
  address: string;
  query: string;
  token: string;
}

/** A connection didn't open; the message is the reason under which the failure is counted. */
export class ConnectError extends Error {}

/** Events of connections that a workload receives. */
export interface Listener {
  message(connection: Connection, data: Buffer, binary: boolean): void;
  closed(connection: Connection, reason: string): void;
}

/** An open connection with its counters. */
export class Connection {
  readonly index: number;
  readonly id: string;
  readonly ws: WebSocket;
  readonly socket: Socket;
  /** The number of the next message. */
  next = FIRST_SEQUENCE;
  sequenceSum = 0n;
  replies = 0;
  /** Messages whose write failed because the connection closed. */
  unsent = 0;
  bytesReceived = 0;
  open = true;
  private readonly bytesBefore: number;

  constructor(index: number, id: string, ws: WebSocket, upgraded: Upgraded) {
    this.index = index;
    this.id = id;
    this.ws = ws;
    this.socket = upgraded.socket;
    this.bytesBefore = upgraded.bytesWritten;
  }

  /** Bytes written since the upgrade, headers included. */
  get bytesSent(): number {
    return this.socket.bytesWritten - this.bytesBefore;
  }

  /** Number of numbered messages that were handed to the socket or wait in this process. */
  get offered(): number {
    return this.next - FIRST_SEQUENCE;
  }

  /** The connection's books after the drain. Numbers are consecutive, so their sum follows from their count. */
  book(numbered: boolean): WorkerBook {
    const sent = this.offered - this.unsent;
    const [count, first] = [BigInt(sent), BigInt(FIRST_SEQUENCE)];
    const sum = numbered ? count * first + (count * (count - 1n)) / 2n : 0n;
    // `client_hello` is the only message without a number.
    return { id: this.id, sent, sequence_sum: BigInt.asUintN(64, sum), unnumbered: 1, replies: this.replies };
  }

  /** Closes the connection and waits for the other side, with a time limit. */
  async close(): Promise<void> {
    if (!this.open) return;
    this.open = false;
    await new Promise<void>((resolve) => {
      const late = setTimeout(() => this.ws.terminate(), CLOSE_MS);
      this.ws.once("close", () => {
        clearTimeout(late);
        resolve();
      });
      if (this.ws.readyState === WebSocket.CLOSED) resolve();
      this.ws.close(1000);
    });
  }
}

interface Upgraded {
  socket: Socket;
  bytesWritten: number;
}

/** Connects, waits for `server_ready` and sends `client_hello`. Rejects with `ConnectError`. */
export function connect(
  target: Target,
  index: number,
  localAddress: string | undefined,
  listener: Listener,
): Promise<Connection> {
  const ws = new WebSocket(`ws://${target.address}/wse?${target.query}`, {
    headers: { Cookie: `access_token=${target.token}` },
    handshakeTimeout: HANDSHAKE_MS,
    maxPayload: LARGEST_MESSAGE_BYTES,
    perMessageDeflate: false,
    ...(localAddress === undefined ? {} : { localAddress }),
  });
  return new Promise((resolve, reject) => {
    let upgraded: Upgraded | undefined;
    let connection: Connection | undefined;
    const fail = (reason: string) => {
      clearTimeout(late);
      reject(new ConnectError(reason));
      ws.terminate();
    };
    const late = setTimeout(() => fail("timeout"), HANDSHAKE_MS);
    ws.on("upgrade", ({ socket }: IncomingMessage) => {
      upgraded = { socket, bytesWritten: socket.bytesWritten };
    });
    ws.on("error", (error) => fail(reasonOf(error)));
    ws.on("close", (code) => {
      if (connection === undefined) return fail(`closed ${code}`);
      if (!connection.open) return;
      connection.open = false;
      listener.closed(connection, `closed ${code}`);
    });
    ws.on("message", (data: Buffer, binary) => {
      if (connection !== undefined) {
        connection.bytesReceived += frameBytes(data.length);
        listener.message(connection, data, binary);
        return;
      }
      const id = readyId(data, binary);
      if (id === undefined || upgraded === undefined) return;
      const opened = new Connection(index, id, ws, upgraded);
      opened.bytesReceived = frameBytes(data.length);
      connection = opened;
      ws.send(HELLO, (error) => {
        clearTimeout(late);
        if (error) fail("hello");
        else resolve(opened);
      });
    });
  });
}

/** The size of an unmasked frame with header, in bytes (RFC 6455, section 5.2). */
export function frameBytes(payload: number): number {
  return payload + (payload < 126 ? 2 : payload < 65_536 ? 4 : 10);
}

/** The connection's id in a `server_ready`, else undefined; older servers put `WSE` before the JSON. */
export function readyId(data: Buffer, binary: boolean): string | undefined {
  if (binary) return undefined;
  const text = data.toString();
  try {
    const value = JSON.parse(text.slice(text.indexOf("{")));
    if (value.t !== "server_ready") return undefined;
    return String(value.p?.details?.connection_id ?? value.p?.connection_id ?? "");
  } catch {
    return undefined;
  }
}

function reasonOf(error: Error & { code?: string }): string {
  const status = /Unexpected server response: (\d+)/.exec(error.message);
  if (status) return `http ${status[1]}`;
  if (/timed out/.test(error.message)) return "timeout";
  return (error.code ?? error.message).toLowerCase();
}
