// Counts in a file under a lock, for `make clients`: worker.js NAME CLIENTS TURNS FILE.
import { readFileSync, writeFileSync, writeSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { Locks } from '../holdfast.js';

const [name, clients, turns, file] = process.argv.slice(2);
const servers = process.env.HOLDFAST_SERVERS.split(',');
const now = () => Number(process.hrtime.bigint());
const write = (event) => writeSync(1, `${JSON.stringify({ t: now(), ...event })}\n`);

// Asks in each turn with wait_ms 0 first, and writes that there is a place, for the checker's order.
function tellPlaces(locks, event) {
  const send = locks._send.bind(locks);
  const asked = new Set();
  Object.defineProperty(locks, '_send', { value: async (at, path, body, ...rest) => {
    if (path !== '/v1/acquire' || asked.has(event.n)) return send(at, path, body, ...rest);
    asked.add(event.n);
    const answer = await send(at, path, JSON.stringify({ ...JSON.parse(body), wait_ms: 0 }), ...rest);
    if (answer.status === 202 && JSON.parse(answer.text).left_ms > 0) write({ e: 'wait', ...event });
    return answer;
  } });
}

await Promise.all(Array.from({ length: Number(clients) }, async (_, g) => {
  const locks = new Locks(g % 2 ? [...servers].reverse() : servers);
  const event = {};
  tellPlaces(locks, event);
  for (let turn = 0; turn < Number(turns); turn++) {
    const n = 1 + g * Number(turns) + turn;
    Object.assign(event, { g, n });
    write({ e: 'ask', g, n, name, units: 1, limit: 1, alone: true });
    const hold = await locks.acquire(name);
    write({ e: 'got', g, n, tok: hold.token, end: Math.floor(hold.until * 1e6) });
    const value = Number(readFileSync(file, 'utf8'));
    await setImmediate();
    writeFileSync(file, `${value + 1}\n`);
    hold.check();
    write({ e: 'out', g, n, end: Math.floor(hold.until * 1e6) });
    const result = await hold.release();
    if (result !== 'released') throw new Error(result);
    write({ e: 'done', g, n });
  }
}));
