// JSON that keeps integers exact. PostgreSQL's jsonb holds any integer, a JavaScript number only those up
// to 2^53: larger ones come as BigInt, and a BigInt is written as a JSON number.

// A string, or an integer of 16 digits and more that is no part of a fraction or exponent.
const STRINGS_AND_LARGE = /"(?:[^"\\]|\\.)*"|(?<![\d.eE+-])-?\d{16,}(?![\d.eE])/g;
// No jsonb contains this character, so it cannot be the beginning of a string of the user's.
const MARK = '\u0000';

export function parse(text) {
  if (text === null || text === undefined) return null;
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  let marked = false;
  const safe = text.replace(STRINGS_AND_LARGE, (token) => {
    if (token[0] === '"' || Number.isSafeInteger(Number(token))) return token;
    marked = true;
    return `"\\u0000${token}"`;
  });
  if (!marked) return JSON.parse(text);
  return JSON.parse(safe, (key, value) =>
    typeof value === 'string' && value[0] === MARK ? BigInt(value.slice(1)) : value);
}

export function stringify(value) {
  let marked = false;
  const text = JSON.stringify(value ?? null, (key, item) => {
    if (typeof item !== 'bigint') return item;
    marked = true;
    return MARK + item;
  });
  if (text === undefined) throw new TypeError(`A ${typeof value} cannot be written as JSON`);
  return marked ? text.replace(/"\\u0000(-?\d+)"/g, '$1') : text;
}
