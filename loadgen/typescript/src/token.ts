// The access token (JWT, HS256) with the claims of the published benchmarks.

import { createHmac } from "node:crypto";

const TOKEN_SECONDS = 3600;

/** Signs a token that is valid for one hour from `now`, in seconds since the Unix epoch. */
export function token(secret: string, now: number): string {
  const claims = { sub: "bench-user", iss: "wse-bench", aud: "wse-bench", exp: now + TOKEN_SECONDS, iat: now };
  const signed = [{ alg: "HS256", typ: "JWT" }, claims].map((part) => base64url(JSON.stringify(part))).join(".");
  return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
}

function base64url(text: string): string {
  return Buffer.from(text).toString("base64url");
}
