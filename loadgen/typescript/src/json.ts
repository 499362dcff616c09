// JSON in which whole numbers keep all of their digits: sums of sequence numbers use 64 bits, and a double has 53.

const MARK = "\u0000";

/** JSON in which a bigint is a plain number with all of its digits. */
export function toJson(value: unknown): string {
  const marked = JSON.stringify(
    value,
    (_, one: unknown) => (typeof one === "bigint" ? `${MARK}${one}${MARK}` : one),
    1,
  );
  return marked.replace(/"\\u0000(\d+)\\u0000"/g, "$1");
}

/** The other way: a whole number that a double can't hold is a bigint. */
export function fromJson<T>(text: string): T {
  // Strings are matched, too, so that digits inside one are left alone.
  const marked = text.replace(/"(?:[^"\\]|\\.)*"|(?<![\w.+-])\d{16,}(?![\w.])/g, (token) =>
    token.startsWith('"') ? token : `"\\u0000${token}"`,
  );
  return JSON.parse(marked, (_, one: unknown) =>
    typeof one === "string" && one.startsWith(MARK) ? exact(one.slice(MARK.length)) : one,
  ) as T;
}

function exact(digits: string): number | bigint {
  const value = Number(digits);
  return Number.isSafeInteger(value) ? value : BigInt(digits);
}
