// JSON in which integers keep all digits: sums of sequence numbers use 64 bits, and a double has 53.

const MARK = "\u0000";

/** Converts to JSON; a bigint is written as a number with all of its digits. */
export function toJson(value: unknown): string {
  const marked = JSON.stringify(
    value,
    (_, item: unknown) => (typeof item === "bigint" ? `${MARK}${item}${MARK}` : item),
    1,
  );
  return marked.replace(/"\\u0000(\d+)\\u0000"/g, "$1");
}

/** Parses JSON; an integer that a double can't represent becomes a bigint. */
export function fromJson<T>(text: string): T {
  // Strings are matched as well, so that digits inside them stay unchanged.
  const marked = text.replace(/"(?:[^"\\]|\\.)*"|(?<![\w.+-])\d{16,}(?![\w.])/g, (token) =>
    token.startsWith('"') ? token : `"\\u0000${token}"`,
  );
  return JSON.parse(marked, (_, item: unknown) =>
    typeof item === "string" && item.startsWith(MARK) ? exact(item.slice(MARK.length)) : item,
  ) as T;
}

function exact(digits: string): number | bigint {
  const value = Number(digits);
  return Number.isSafeInteger(value) ? value : BigInt(digits);
}
