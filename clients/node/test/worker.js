// Counts in a file under a lock, for `make clients`: worker.js NAME CLIENTS TURNS FILE.
import { readFileSync, writeFileSync, writeSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { Locks } from '../holdfast.js';

const [name, clients, turns, file] = process.argv.slice(2);
const servers = process.env.HOLDFAST_SERVERS.split(',');
const now = () => Number(process.hrtime.bigint());
const write = (event) => writeSync(1, `${JSON.stringify({ t: now(), ...event })}\n`);

await Promise.all(Array.from({ length: Number(clients) }, async (_, g) => {
  const locks = new Locks(g % 2 ? [...servers].reverse() : servers);
  for (let turn = 0; turn < Number(turns); turn++) {
    const n = 1 + g * Number(turns) + turn;
    write({ e: 'ask', g, n, name, units: 1, limit: 1 });
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
