// A line of JSON to stderr for each event, unless the application gives a logger of its own, with pino's
// methods.

const LEVELS = ['debug', 'info', 'warn', 'error'];

// What a level that is not logged does.
export const off = () => {};

export function jsonLog(level = process.env.QUEUE_JOBS_LOG || 'info', write = (line) => process.stderr.write(line)) {
  const least = LEVELS.indexOf(level);
  const log = {};
  LEVELS.forEach((name, i) => {
    log[name] = i < least ? off : (fields, message) =>
      write(`${JSON.stringify({ time: new Date().toISOString(), level: name, message, ...fields })}\n`);
  });
  return log;
}

// What a line says of an error; only the server's have an SQLSTATE.
export const ofError = (error) => ({ error: error?.message || error?.code, sqlstate: error?.severity ? error.code : undefined });

// A logger whose lines have these fields, too.
export function child(log, fields) {
  return Object.fromEntries(LEVELS.map((name) => [name, log[name] === off ? off : (own, message) => log[name]({ ...fields, ...own }, message)]));
}
