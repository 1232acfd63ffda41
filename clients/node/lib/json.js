// JSON that keeps integers exact. PostgreSQL's jsonb holds any integer, a JavaScript number only those up
// to 2^53: larger ones come as BigInt, and a BigInt is written as a JSON number.

// Outside of strings: an integer of 16 digits and more that is no part of a fraction or exponent.
const LARGE = /(?<![\d.eE+-])-?\d{16,}(?![\d.eE])/g;
// No jsonb contains this character, so it cannot be the beginning of a string of the user's.
const MARK = '\u0000';

// Where the string ends whose quote is there. By no pattern, for one needs a stack as long as the string.
export function endOfString(text, begin) {
  const quote = text[begin];
  for (let at = text.indexOf(quote, begin + 1); at >= 0; at = text.indexOf(quote, at + 1)) {
    let escapes = 0;
    while (text[at - 1 - escapes] === '\\') escapes++;
    if (escapes % 2 === 0) return at + 1;
  }
  return text.length;
}

function replaceOutsideOfStrings(text, pattern, replacement) {
  const pieces = [];
  for (let at = 0; at < text.length;) {
    const quote = text.indexOf('"', at);
    const begin = quote < 0 ? text.length : quote;
    pieces.push(text.slice(at, begin).replace(pattern, replacement));
    at = quote < 0 ? begin : endOfString(text, begin);
    pieces.push(text.slice(begin, at));
  }
  return pieces.join('');
}

// By no recursion: jsonb may be some thousand levels deep.
function withLarge(root) {
  const holder = { root };
  for (let left = [holder]; left.length > 0;) {
    const container = left.pop();
    for (const [key, value] of Object.entries(container)) {
      if (typeof value === 'string' && value[0] === MARK) container[key] = BigInt(value.slice(1));
      else if (typeof value === 'object' && value !== null) left.push(value);
    }
  }
  return holder.root;
}

export function parse(text) {
  if (text === null || text === undefined) return null;
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  let marked = false;
  const safe = replaceOutsideOfStrings(text, LARGE, (token) => {
    if (Number.isSafeInteger(Number(token))) return token;
    marked = true;
    return `"\\u0000${token}"`;
  });
  return marked ? withLarge(JSON.parse(safe)) : JSON.parse(text);
}

function stringifyWithLarge(value) {
  const text = JSON.stringify(value, (key, item) => {
    if (typeof item === 'string' && item[0] === MARK) throw new TypeError('A string with \\u0000 cannot be written as jsonb');
    return typeof item === 'bigint' ? MARK + item : item;
  });
  return text.replace(/"\\u0000(-?\d+)"/g, '$1');
}

export function stringify(value) {
  let text;
  try {
    text = JSON.stringify(value ?? null);
  } catch {
    return stringifyWithLarge(value); // there may be a BigInt in it
  }
  if (text === undefined) throw new TypeError(`A ${typeof value} cannot be written as JSON`);
  return text;
}
