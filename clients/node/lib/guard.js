// The handler's transaction is the claim's: if it ended it, the job would be claimed again at once, or run
// as if by lease. So statements that begin or end a transaction are told from others, in time that grows as
// the text does.
import { endOfString } from './json.js';

// Where something begins in which a semicolon ends no statement, or a statement does.
const NEXT = /--|\/\*|['";]|\$(?:[A-Za-z_\u0080-\uffff][\w\u0080-\uffff]{0,62})?\$/g;
const MAY_END = /\b(?:begin|start|commit|end|abort|rollback|prepare)\b/i;
// Of a statement without its comments and strings. In the body of a function END ends no transaction.
const ENDS = /^\s*(?:begin|start\s+transaction|commit|abort|rollback(?!\s+(?:work\s+|transaction\s+)?to\b)|prepare\s+transaction)\b/i;
const END = /^\s*end\b/i;
const BODY = /\bbegin\s+atomic\b/i;

function endOfComment(text, begin) {
  const marks = /\/\*|\*\//g;
  marks.lastIndex = begin;
  for (let depth = 0, mark = marks.exec(text); mark; mark = marks.exec(text)) {
    depth += mark[0] === '/*' ? 1 : -1;
    if (depth === 0) return marks.lastIndex;
  }
  return text.length;
}

const endAfter = (text, mark, from) => {
  const at = text.indexOf(mark, from);
  return at < 0 ? text.length : at + mark.length;
};

// Where that which begins at `at` ends.
function endOf(text, mark, at) {
  if (mark === '--') return endAfter(text, '\n', at);
  if (mark === '/*') return endOfComment(text, at);
  if (mark === "'" && /(?:^|[^\w$])[eE]$/.test(text.slice(Math.max(at - 2, 0), at))) {
    let end = endOfString(text, at);
    while (text[end] === mark) end = endOfString(text, end); // a doubled quote is a part of it
    return end;
  }
  return endAfter(text, mark, at + mark.length);
}

// Without comments, and with nothing in its strings.
function* statementsOf(text) {
  let statement = '';
  let begin = 0;
  NEXT.lastIndex = 0;
  for (let found = NEXT.exec(text); found; found = NEXT.exec(text)) {
    const [mark] = found;
    // In a$1$ it is a part of a name.
    if (mark[0] === '$' && /[\w$\u0080-\uffff]/.test(text[found.index - 1] ?? '')) {
      NEXT.lastIndex = found.index + 1;
      continue;
    }
    statement += text.slice(begin, found.index);
    if (mark === ';') {
      yield statement;
      statement = '';
    } else {
      statement += ' ';
      NEXT.lastIndex = endOf(text, mark, found.index);
    }
    begin = NEXT.lastIndex;
  }
  yield statement + text.slice(begin);
}

// Whether one of the statements of a text begins or ends a transaction.
export function endsTransaction(text) {
  if (typeof text !== 'string' || !MAY_END.test(text)) return false;
  let inBody = false;
  for (const statement of statementsOf(text)) {
    if (ENDS.test(statement) || (!inBody && END.test(statement))) return true;
    inBody ||= BODY.test(statement);
  }
  return false;
}

// pg's client as a handler is given it. task: its connection; over, once the job has ended; last, its last
// statement.
export function guarded(client, task) {
  return new Proxy(client, {
    get(target, name) {
      const value = target[name];
      if (name !== 'query') return typeof value === 'function' ? value.bind(target) : value;
      return (query, ...rest) => {
        if (task.over) return Promise.reject(new Error('The job has ended, and its transaction with it'));
        if (endsTransaction(query?.text ?? query))
          return Promise.reject(new Error('A handler does not begin or end the transaction: it is the one of its job. Use SAVEPOINT, or lease mode'));
        task.last = target.query(query, ...rest);
        task.last?.catch?.((error) => task.connection.judge(target, error));
        return task.last;
      };
    },
  });
}
