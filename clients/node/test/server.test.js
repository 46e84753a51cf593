// Beside lock servers: go run ./clients/lockd node --test clients/node/test/
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { HeldError, Locks, LostError, RefusedError } from '../holdfast.js';

const servers = (process.env.HOLDFAST_SERVERS ?? '').split(',');
const turn = (server, way) => fetch(`${server}/test/${way}`, { method: 'POST' });

test('lock excludes, and tokens grow', async () => {
  assert.ok(servers[0], 'HOLDFAST_SERVERS is not set: run the tests by clients/lockd');
  const locks = new Locks(servers);
  const first = await locks.lock('node/excludes', async (hold) => {
    await assert.rejects(new Locks(servers[1]).acquire('node/excludes', { wait: 0 }), (e) => e instanceof HeldError && e.answer.holder.note === 'first');
    return hold.token;
  }, { note: 'first' });
  await locks.lock('node/excludes', (hold) => assert.ok(hold.token > first));
});

test('bad requests are told', async () => {
  await assert.rejects(new Locks(servers).acquire('node/bad', { ttl: 10 }), (e) => e instanceof RefusedError && e.code === 'bad_ttl');
});

test('renewals keep the lock', async () => {
  await new Locks(servers, { ttl: 3000 }).lock('node/renewals', async (hold) => {
    await sleep(4000);
    hold.check();
  });
});

test('tasks count exactly', async () => {
  const locks = new Locks(servers);
  let count = 0;
  await Promise.all(Array.from({ length: 20 }, async () => {
    for (let n = 0; n < 5; n++) {
      await locks.lock('node/count', async () => {
        const value = count;
        await sleep(1);
        count = value + 1;
      });
    }
  }));
  assert.equal(count, 100);
});

test('an aborted wait leaves the queue', async () => {
  await new Locks(servers).lock('node/abort', async () => {
    const abort = new AbortController();
    const waiting = new Locks(servers).acquire('node/abort', { signal: abort.signal });
    setTimeout(() => abort.abort(), 200);
    await assert.rejects(waiting, { name: 'AbortError' });
  });
  await new Locks(servers).lock('node/abort', () => {}, { wait: 10000 });
});

test('a killed process delays others by a TTL', async () => {
  const code = `import { Locks } from ${JSON.stringify(new URL('../holdfast.js', import.meta.url).href)};
    await new Locks(process.argv[1]).acquire('node/killed', { ttl: 1000 }); console.log('held');`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', code, servers[0]], { stdio: ['ignore', 'pipe', 'inherit'] });
  await once(child.stdout, 'data');
  child.kill('SIGKILL');
  await once(child, 'exit');
  await new Locks(servers).lock('node/killed', () => {}, { wait: 30000 });
});

test('a hold survives its server', async () => {
  const locks = new Locks(servers, { ttl: 3000 });
  await locks.lock('node/survives', async (hold) => {
    await turn(servers[0], 'down');
    await sleep(4000);
    await turn(servers[0], 'up');
    hold.check();
    assert.ok(hold._p.moved);
  });
});

test('a loss is told where no server answers', async () => {
  const told = [];
  const options = { ttl: 1000, onDoubt: () => told.push('doubt'), onLoss: (h) => told.push(h.reason) };
  const hold = await new Locks(servers).acquire('node/loss', options);
  for (const server of servers) await turn(server, 'down');
  await once(hold.signal, 'abort');
  for (const server of servers) await turn(server, 'up');
  assert.throws(() => hold.check(), LostError);
  assert.equal(await hold.release(), 'lost');
  assert.deepEqual(told, ['doubt', 'expired']);
});
