// The rules of clients/README.md, by number, with a clock and answers that the tests set.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HeldError, Locks, LostError, RefusedError, UnavailableError } from '../holdfast.js';

const GROUP = { server: 'a.1', group: '00000001' };
const grant = { state: 'held', token: 7, left_ms: 10000 };
const normal = (path, body) =>
  path === 'acquire' ? [100, 200, grant]
    : path === 'renew' ? [100, 200, { holds: body.holds.map(() => grant) }] : [0, 200, { holds: [{ result: 'released' }] }];
const but = (path, ...answers) => (p, body) => (p === path && answers.length > 0 ? answers.shift() : normal(p, body));

// A client whose requests answer() answers, and whose clock only answers and pauses move.
function world(answer = normal) {
  const locks = new Locks(['http://127.0.0.1:1', 'http://127.0.0.1:2'], { ttl: 10000 });
  const w = { locks, now: 1000000, asked: [], paths: () => w.asked.map((a) => a.path) };
  locks._clock = () => w.now;
  locks._pause = async (ms) => { w.now += ms; };
  locks._keep = () => {}; // the tests call what it calls
  locks._send = async (at, path, text, limit) => {
    const body = JSON.parse(text);
    w.asked.push({ at, path: path.split('/').pop(), body, limit });
    const [delay, status, reply, headers = { holdfast: '1' }] = answer(path.split('/').pop(), body);
    w.now += delay;
    if (!reply) throw new Error('no answer');
    return { status, headers, text: JSON.stringify({ ...GROUP, ...reply }) };
  };
  return w;
}

test('rule 01: ids are fresh', async () => {
  const w = world();
  const ids = [await w.locks.acquire('n'), await w.locks.acquire('n'), await world().locks.acquire('n')].map((h) => h.id);
  assert.equal(new Set(ids).size, 3);
  for (const id of ids) assert.match(id, /^[A-Za-z0-9_-]{22,64}\.[0-9]+$/);
  assert.equal(ids[0].split('.')[0], ids[1].split('.')[0]);
  assert.notEqual(ids[0].split('.')[0], ids[2].split('.')[0]);
});

test('rule 03: until counts from the sending, with margins', async () => {
  for (const [left, until] of [[10000, 1010000 - 100 - 20], [1000, 1001000 - 10 - 10]]) {
    const { locks } = world(but('acquire', [500, 200, { ...grant, left_ms: left }]));
    assert.equal((await locks.acquire('n')).until, until);
  }
});

test('rule 04: until moves only forward', async () => {
  const { locks } = world(but('renew', [100, 200, { holds: [{ ...grant, left_ms: 3000 }] }]));
  const hold = await locks.acquire('n');
  const was = hold.until;
  await locks._renew(hold);
  assert.equal(hold.until, was);
  await locks._renew(hold);
  assert.ok(hold.until > was);
});

test('rule 05: a late grant is released', async () => {
  const w = world(but('acquire', [10500, 200, { ...grant, token: 6 }]));
  assert.equal((await w.locks.acquire('n')).token, 7);
  assert.deepEqual(w.paths(), ['acquire', 'release', 'acquire']);
  assert.equal(w.asked[1].body.holds[0].id, w.asked[0].body.id);
  assert.notEqual(w.asked[2].body.id, w.asked[0].body.id);
});

test('rule 06: a loss is final', async () => {
  const w = world(but('renew', [10000, 200, { holds: [{ ...grant, left_ms: 20000 }] }]));
  const hold = await w.locks.acquire('n');
  await w.locks._renew(hold);
  assert.throws(() => hold.check(), (e) => e instanceof LostError && e.code === 'expired');
  assert.ok(hold.signal.aborted);
  assert.ok(hold.signal.reason instanceof LostError);
  assert.ok(w.paths().includes('release'));
  assert.equal(await hold.release(), 'lost');
});

test('rule 06: check compares clocks', async () => {
  const w = world();
  const hold = await w.locks.acquire('n');
  w.now = hold.until - 1;
  hold.check();
  w.now = hold.until;
  assert.throws(() => hold.check(), LostError);
});

test('rule 07: times of renewals', async () => {
  const w = world(but('renew', [1000, 0, null]));
  const hold = await w.locks.acquire('n');
  assert.equal(Math.round(hold._p.due), 1003333);
  w.now = hold._p.due;
  await w.locks._renew(hold);
  assert.ok(hold._p.due - w.now >= 250 && hold._p.due - w.now <= 750);
  const sent = (w.now = hold._p.due);
  await w.locks._renew(hold);
  assert.equal(Math.round(hold._p.due - sent), 3333);
  assert.deepEqual(w.asked.filter((a) => a.path === 'renew').map((a) => a.at), [0, 1]);
});

test('rule 08: clock includes suspends, and steps change nothing', async (t) => {
  const fs = (await import('node:fs')).default;
  const { syncBuiltinESMExports } = await import('node:module');
  const { now } = Date;
  const read = fs.readFileSync;
  t.after(() => {
    Date.now = now;
    fs.readFileSync = read;
    syncBuiltinESMExports();
  });
  const { locks: { _clock: clock } } = new (class { locks = new Locks('http://localhost:1'); })();
  const before = clock();
  Date.now = () => now() + 3600000; // a step
  assert.ok(clock() - before < 60000);
  fs.readFileSync = (...a) => (a[0] === '/proc/uptime' ? `${Number(read(...a).split(' ')[0]) + 3600} 0` : read(...a));
  syncBuiltinESMExports();
  Date.now = () => now() + 7200000; // a suspend
  assert.ok(clock() - before >= 3599000);
});

test('rule 09: release says moved', async () => {
  const kept = { holds: [{ ...grant, left_ms: 9000 }] };
  for (const [answer, moved] of [[[100, 200, kept], false], [[100, 0, null], true], [[100, 200, { ...kept, server: 'b.2' }], true]]) {
    const w = world(but('renew', answer));
    const hold = await w.locks.acquire('n');
    await w.locks._renew(hold);
    assert.equal(await hold.release(), 'released');
    assert.deepEqual(w.asked.at(-1).body.holds, [{ id: hold.id, name: 'n', moved }]);
  }
});

test('rule 10: ways out release', async () => {
  let w = world(but('acquire', [1000, 202, { state: 'waiting' }]));
  await assert.rejects(w.locks.acquire('n', { wait: 500 }), HeldError);
  assert.deepEqual(w.paths(), ['acquire', 'release']);
  w = world((p, b) => (p === 'acquire' ? [3000, 0, null] : normal(p, b)));
  await assert.rejects(w.locks.acquire('n'), UnavailableError);
  assert.equal(w.paths().at(-1), 'release');
  const abort = new AbortController();
  w = world((p, b) => (p === 'acquire' ? (abort.abort(), [100, 202, { state: 'waiting' }]) : normal(p, b)));
  await assert.rejects(w.locks.acquire('n', { signal: abort.signal }), { name: 'AbortError' });
  assert.ok(w.paths().includes('release'));
});

test('rule 11: the next server has the same id', async () => {
  const answers = [[100, 0, null], [100, 503, { code: 'draining' }], [100, 500, { code: 'internal' }], [100, 200, { ...grant, token: 9 }, {}]];
  for (const answer of answers) {
    const w = world(but('acquire', answer));
    assert.equal((await w.locks.acquire('n')).token, 7);
    assert.deepEqual(w.asked.map((a) => a.at), [0, 1]);
    assert.equal(w.asked[0].body.id, w.asked[1].body.id);
  }
});

test('rule 11: each server is asked before the wait ends', async () => {
  for (const [wait, took] of [[0, 0], [Infinity, 11000]]) {
    const w = world(but('acquire', [took, 0, null]));
    assert.equal((await w.locks.acquire('n', { wait })).token, 7);
    assert.deepEqual(w.asked.map((a) => a.at), [0, 1]);
  }
  const w = world((p, b) => (p === 'acquire' ? [0, 0, null] : normal(p, b)));
  await assert.rejects(w.locks.acquire('n', { wait: 0 }), UnavailableError);
  assert.deepEqual(w.paths(), ['acquire', 'acquire', 'release']);
});

test('rule 11: a server without its store is left', async () => {
  const away = { status: 503, code: 'store_unknown', left_ms: 9000 };
  for (const [path, entry, at] of [['renew', away, [0, 0, 1]], ['release', { result: 'unknown' }, [0, 0, 0, 1]]]) {
    const w = world(but(path, [100, 200, { holds: [entry] }]));
    const hold = await w.locks.acquire('n');
    await w.locks._renew(hold);
    assert.equal(await hold.release(), 'released');
    assert.deepEqual(w.asked.map((a) => a.at), at);
  }
});

test('rule 12: another group is refused', async () => {
  const foreign = { group: '00000002' };
  let w = world(but('renew', [100, 200, { ...foreign, holds: [{ ...grant, left_ms: 99000 }] }]));
  const hold = await w.locks.acquire('n');
  const was = hold.until;
  await w.locks._renew(hold);
  assert.equal(hold.until, was);
  w = world(but('acquire', [100, 202, { state: 'waiting' }], [100, 200, { ...grant, ...foreign }]));
  await assert.rejects(w.locks.acquire('n'), RefusedError);
});

test('rule 13: holds nest by count', async () => {
  const w = world();
  await w.locks.lock('n', async (outer) => {
    await w.locks.lock('n', async (inner) => assert.equal(inner, outer));
    outer.check();
    assert.deepEqual(w.paths(), ['acquire']);
  });
  assert.deepEqual(w.paths(), ['acquire', 'release']);
  await w.locks.lock('n', async () => {});
  assert.equal(w.paths().length, 4);
});

test('rule 14: a token needs TLS and stays hidden', async (t) => {
  const { inspect } = await import('node:util');
  assert.throws(() => new Locks('http://lockd1:7420', { token: 'geheim' }), (e) => e instanceof TypeError && !e.message.includes('geheim'));
  const locks = new Locks('https://lockd1:7420', { token: 'geheim' });
  assert.ok(!inspect(locks).includes('geheim') && !JSON.stringify(locks).includes('geheim'));
  const { default: https } = await import('node:https');
  const mocked = t.mock.method(https, 'request', () => { throw new Error('no network'); });
  const ended = new Locks('https://lockd1:7420', { token: () => 'geheim\n', ttl: 500 }).acquire('n', { wait: 0 });
  await assert.rejects(ended, UnavailableError);
  const [{ headers, rejectUnauthorized }] = mocked.mock.calls[0].arguments;
  assert.equal(headers.Authorization, 'Bearer geheim');
  assert.equal(rejectUnauthorized, undefined);
  const bad = new Locks('http://127.0.0.1:1', { token: 'ge\nheim' });
  await assert.rejects(bad.acquire('n'), (e) => e instanceof RefusedError && !e.message.includes('heim'));
  for (const bad of ['ftp://h', 'http://user:geheim@h', 'https://h/path', 'h:7420', []]) assert.throws(() => new Locks(bad), TypeError);
});

test('rule 15: a request has one id', async () => {
  const w = world();
  const holds = [await w.locks.acquire('n1'), await w.locks.acquire('n2')];
  for (const hold of holds) await w.locks._renew(hold);
  const renewed = w.asked.filter((a) => a.path === 'renew').map((a) => a.body.holds);
  assert.deepEqual(renewed, holds.map((hold) => [hold.id]));
});

test('rule 16: release is bounded and tells', async () => {
  for (const [results, told] of [[['released'], 'released'], [['gone'], 'lost'], [[null, 'gone'], 'released']]) {
    const w = world(but('release', ...results.map((r) => (r ? [100, 200, { holds: [{ result: r }] }] : [100, 0, null]))));
    assert.equal(await (await w.locks.acquire('n')).release(), told);
  }
  const w = world((p, b) => (p === 'release' ? [400, 0, null] : normal(p, b)));
  const hold = await w.locks.acquire('n');
  const began = w.now;
  assert.equal(await hold.release(), 'unknown');
  assert.ok(w.now - began < 3334 + 400 + 750);
});

test('rule 17: doubt is told once', async () => {
  const w = world();
  const told = [];
  const hold = await w.locks.acquire('n', { onDoubt: (h) => told.push(h) });
  hold._p.due = Infinity;
  for (const before of [2600, 2400, 2300]) {
    w.now = hold.until - before;
    Locks.prototype._keep.call(w.locks, hold);
    await null;
    assert.equal(told.length, before === 2600 ? 0 : 1);
  }
  assert.ok(hold.inDoubt);
  await w.locks._renew(hold);
  assert.ok(!hold.inDoubt);
  clearTimeout(hold._p.timer);
});

test('rule 18: the next try begins with resume', async () => {
  const unknown = [100, 200, { holds: [{ status: 404, code: 'unknown_hold' }] }];
  const answers = [[100, 200, grant], [100, 503, { code: 'store_unknown' }]];
  const w = world((p, b) => (p === 'acquire' ? answers.shift() ?? normal(p, b) : p === 'renew' ? unknown : normal(p, b)));
  const hold = await w.locks.acquire('n');
  await w.locks._renew(hold);
  await w.locks._renew(hold);
  assert.equal(w.asked.at(-1).body.resume, 7);
  assert.equal(w.asked.length, 4);
  await w.locks._renew(hold);
  assert.equal(w.asked[4].body.resume, undefined);
  hold.check();
});

test('rule 18: a hold that waits elsewhere is resumed', async () => {
  const w = world(but('renew', [100, 200, { holds: [{ state: 'waiting', left_ms: 9000 }] }]));
  const hold = await w.locks.acquire('n');
  await w.locks._renew(hold);
  assert.equal(w.asked.at(-1).body.resume, 7);
  hold.check();
});

test('rule 18: unknown_hold is resumed by its token', async () => {
  const unknown = [100, 200, { holds: [{ status: 404, code: 'unknown_hold' }] }];
  const w = world(but('renew', unknown));
  const hold = await w.locks.acquire('n');
  await w.locks._renew(hold);
  assert.equal(w.asked.at(-1).body.resume, 7);
  hold.check();
  const answers = [[100, 200, grant], [100, 200, { ...grant, token: 8 }]];
  const other = world((p, b) => (p === 'acquire' ? answers.shift() : p === 'renew' ? unknown : normal(p, b)));
  const lost = await other.locks.acquire('n');
  await other.locks._renew(lost);
  assert.throws(() => lost.check(), LostError);
});
