// Where the servers are. pg knows one host; here there may be several, as in libpq's URLs and in PGHOST, of
// which one is the primary.

const list = (value) => (value ? String(value).split(',') : []);

// postgres://user:password@host1:1,host2:2/name?options, which the class URL does not take.
const SEVERAL_HOSTS = /^(postgres(?:ql)?:\/\/(?:[^@/?]*@)?)([^/?]*,[^/?]*)(.*)$/;

function ofUrl(url) {
  const several = SEVERAL_HOSTS.exec(url);
  if (several) {
    const [, before, hosts, after] = several;
    return hosts.split(',').flatMap((host) => ofUrl(before + host + after));
  }
  // Which server is the primary is found out in any case, and pg warns of a parameter that it does not know.
  const [address, query] = url.split('?');
  const parameters = new URLSearchParams(query);
  parameters.delete('target_session_attrs');
  const hosts = list(parameters.get('host'));
  const ports = list(parameters.get('port'));
  const one = (host, i) => {
    if (host !== undefined) parameters.set('host', host);
    const port = ports[i] ?? ports[0];
    if (port !== undefined) parameters.set('port', port);
    return { connectionString: `${parameters}` === '' ? address : `${address}?${parameters}` };
  };
  return hosts.length > 0 ? hosts.map(one) : [one()];
}

function ofConfig(config) {
  const hosts = list(config.host ?? process.env.PGHOST);
  const ports = list(config.port ?? process.env.PGPORT);
  if (config.connectionString || (hosts.length < 2 && ports.length < 2)) return [config];
  return hosts.map((host, i) => ({ ...config, host, port: Number(ports[i] ?? ports[0] ?? 5432) }));
}

// connection: a URL, a configuration of pg's, an array of these, or nothing: DATABASE_URL, or else PGHOST
// and so on.
export function servers(connection = process.env.DATABASE_URL) {
  if (Array.isArray(connection)) return connection.flatMap((one) => servers(one));
  return typeof connection === 'string' && connection !== '' ? ofUrl(connection) : ofConfig(connection || {});
}
