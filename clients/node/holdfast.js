// Locks of a Holdfast lock server. Numbers in comments are those of the rules in clients/README.md.
import { AsyncLocalStorage } from 'node:async_hooks';
import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import { hostname } from 'node:os';

/** The base of this module's errors. */
export class HoldfastError extends Error {
  constructor(message, code = '', answer = {}) {
    super(message);
    this.name = new.target.name;
    this.code = code;
    this.answer = answer;
  }
}
export class HeldError extends HoldfastError {}
export class LostError extends HoldfastError {}
export class RefusedError extends HoldfastError {}
export class UnavailableError extends HoldfastError {}

// Elapsed milliseconds, with those of suspends (rule 8). process.hrtime leaves them out; /proc/uptime is read
// once the wall clock has drifted from it, by a suspend or a step.
let drift = 0;
let asleep = 0;
const monotonic = () => Number(process.hrtime.bigint()) / 1e6;
const uptime = () => Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]) * 1000;
let base = NaN;
try {
  base = uptime() - monotonic();
  drift = Date.now() - monotonic();
} catch {} // no Linux: the clock of the system counts suspends
function boottime() {
  const now = monotonic();
  if (!Number.isNaN(base) && Math.abs(Date.now() - now - drift) > 50) {
    asleep = Math.max(asleep, uptime() - now - base - 20);
    drift = Date.now() - now;
  }
  return now + asleep;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const jitter = (ms) => ms * (0.5 + Math.random());
const hide = (object, fields) => {
  for (const [key, value] of Object.entries(fields)) Object.defineProperty(object, key, { value, writable: true });
};

/** A lock that is held. */
export class Hold {
  constructor(locks, name, ttl, fields, options, id) {
    Object.assign(this, { name, ttl, id, token: 0, until: 0, inDoubt: false, reason: '' });
    const state = { state: 'asking', count: 1, due: 0, granted: 0, asked: false, moved: false, resumes: false };
    hide(this, { _p: { ...state, locks, fields, options, servers: new Set() }, _abort: new AbortController() });
    this.signal = this._abort.signal;
  }

  // Takes over the end of the claim that an answer tells, if it is later than the one before, and to come.
  _claim(c0, left, now) {
    const until = c0 + left - left / 100 - Math.min(left / 100, 20); // rule 3
    if (until <= Math.max(this.until, now)) return false; // rules 4 and 5
    Object.assign(this, { until, inDoubt: false });
    this._p.due = Math.max(c0, until - this.ttl) + this.ttl / 3; // rule 7
    return true;
  }

  _expire() {
    const { locks, state } = this._p;
    if (state === 'held' && locks._clock() >= this.until) locks._lose(this, 'expired'); // rule 6
  }

  /** Throws LostError if the lock may be another's by now. It compares clocks. */
  check() {
    this._expire();
    if (this._p.state !== 'held') {
      const why = this.reason || 'released';
      throw new LostError(`lock ${this.name}: the hold has ended: ${why}`, why);
    }
  }

  /** Gives the lock up: 'released', 'lost' or 'unknown'. */
  async release() {
    if (--this._p.count > 0 || this._p.state === 'released') return 'released'; // rule 13
    this._expire();
    return this.reason ? 'lost' : this._p.locks._end(this);
  }
}

/** A client of lock servers over one store. */
export class Locks {
  constructor(servers, { token, ttl = 30000, tls = {} } = {}) {
    this._urls = [servers].flat().map((s) => {
      let url = {};
      try {
        url = new URL(s);
      } catch {} // it is refused
      if (!/^https?:$/.test(url.protocol) || url.username || url.search || url.pathname !== '/') {
        throw new TypeError('server: an address is http://HOST:PORT or https://HOST:PORT');
      }
      if (token && url.protocol === 'http:' && !['127.0.0.1', '[::1]', 'localhost'].includes(url.hostname)) {
        throw new TypeError('server: a token travels by https:// only'); // rule 14
      }
      return Object.assign(url, { listens: /:(\d+)\/?$/.exec(s)?.[1] ?? 7420 }); // URL drops 80 and 443
    });
    if (this._urls.length === 0) throw new TypeError('servers: none is given');
    this.ttl = ttl;
    hide(this, { _token: token, _tls: tls, _clock: boottime, _pause: pause, _at: 0, _group: '', _timer: undefined });
    hide(this, { _holds: new Set(), _nested: new AsyncLocalStorage(), _count: 0 });
    hide(this, { _client: randomBytes(24).toString('base64url') }); // rule 1; Node does not fork itself (rule 2)
  }

  /** Waits for the lock, calls work with the hold, releases it, and returns what work returned. */
  async lock(name, work, options = {}) {
    const key = JSON.stringify([name, options.kind]);
    const nested = this._nested.getStore() ?? new Map();
    let hold = nested.get(key);
    if (hold && hold._p.state !== 'released') {
      hold.check();
      hold._p.count++; // rule 13
    } else hold = await this.acquire(name, options);
    let result;
    try {
      result = await this._nested.run(new Map(nested).set(key, hold), () => work(hold));
    } catch (error) {
      await hold.release();
      throw error;
    }
    if ((await hold.release()) !== 'lost') return result;
    throw new LostError(`lock ${name}: the hold ended too early: ${hold.reason}`, hold.reason);
  }

  /** Waits for the lock and returns the hold, which the program has to release. */
  async acquire(name, { wait = Infinity, ttl = this.ttl, signal, ...options } = {}) {
    const { onDoubt, onLoss, ...fields } = options;
    const id = () => `${this._client}.${++this._count}`;
    const fresh = () => new Hold(this, name, ttl, { ...fields, ttl_ms: ttl }, { onDoubt, onLoss }, id());
    let hold = fresh();
    let heard = this._clock();
    let missed = 0;
    const end = heard + wait;
    const stop = () => hold._p.asked && this._end(hold); // rule 10: the release overtakes the poll
    signal?.addEventListener('abort', stop, { once: true });
    try {
      for (;;) {
        signal?.throwIfAborted();
        const most = Math.max(0, Math.min(10000, Math.max(1000, ttl / 3), end - this._clock()));
        const way = wait === 0 ? { try: true } : { wait_ms: Math.floor(most) };
        const { c0, status, answer } = await this._ask([hold], '/v1/acquire', this._body(hold, way), most + 5000);
        const now = this._clock();
        signal?.throwIfAborted();
        if (status) heard = now;
        missed = status ? 0 : missed + 1;
        if (status === 200 && answer.state === 'held') {
          if (this._begin(hold, c0, now, answer)) return hold;
          await this._end(hold); // rule 5
        }
        if ([200, 410].includes(status) || answer.code === 'id_in_use') hold = fresh();
        else if (![0, 202, 425, 429].includes(status)) {
          hold._p.asked = hold._p.moved; // without a missed answer, the server has no place of this id
          const Kind = answer.code === 'held' ? HeldError : RefusedError;
          throw new Kind(`lock ${name}: ${answer.detail ?? answer.code ?? status}`, answer.code, answer);
        }
        const over = now >= end || now - heard >= ttl;
        if (over && status) throw new HeldError(`lock ${name}: the wait is over`, 'held', answer);
        if (over && missed >= this._urls.length) throw new UnavailableError(`lock ${name}: no server answers`);
        if (![200, 202, 410].includes(status)) await this._pause(jitter(Math.min(1000, ttl / 20)));
      }
    } finally {
      signal?.removeEventListener('abort', stop);
      if (hold._p.state === 'asking' && hold._p.asked) await this._end(hold); // rule 10
    }
  }

  _body({ id, name, _p }, more) {
    const body = { id, name, ..._p.fields, host: hostname(), pid: process.pid, ...more };
    const held = _p.granted ? Math.floor(this._clock() - _p.granted) : 0;
    if (body.max_hold_ms) body.max_hold_ms = Math.max(1, body.max_hold_ms - held); // what is left of it
    return body;
  }

  _bearer() {
    const text = (typeof this._token === 'function' ? this._token() : this._token) ?? '';
    const token = text.trim(); // a file ends with a new line
    if (!/^[!-~]*$/.test(token)) throw new RefusedError('token: it has characters that a header cannot have', 'token');
    return token ? { Authorization: `Bearer ${token}` } : {};
  }

  // Sends a request, and resolves to the status, the headers and the text of the answer.
  _send(at, path, body, limit, bearer) {
    const url = new URL(path, this._urls[at]);
    const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body), ...bearer };
    const options = { ...this._tls, method: 'POST', headers, port: this._urls[at].listens, agent: false };
    return new Promise((done, fail) => {
      const request = (url.protocol === 'https:' ? https : http).request(url, options);
      const guard = setTimeout(() => request.destroy(new Error('no answer in time')), limit);
      request.on('error', fail).on('close', () => clearTimeout(guard) ?? fail(new Error('the answer is truncated')));
      request.on('response', (response) => {
        const { statusCode: status, headers } = response;
        const parts = [];
        response.on('data', (part) => parts.push(part)).on('error', fail);
        response.on('end', () => {
          const text = Buffer.concat(parts).toString();
          if (response.complete && headers['content-length']) done({ status, headers, text });
        });
      });
      request.end(body);
    });
  }

  // Sends a request: { c0, status, answer }; status 0 if it is the next server's turn.
  async _ask(holds, path, body, limit) {
    const at = this._at;
    const c0 = this._clock();
    const bearer = this._bearer();
    let status = 0;
    let answer;
    for (const hold of holds) hold._p.asked = true;
    try {
      const got = await this._send(at, path, JSON.stringify(body), limit, bearer);
      status = got.status;
      if (got.headers.holdfast === '1') answer = JSON.parse(got.text); // rule 11: else a proxy answered
    } catch {
      answer = undefined;
    }
    const ok = Object(answer) === answer && (status >= 300 || ('group' in answer && 'server' in answer));
    for (const { _p } of holds) {
      _p.servers.add(ok ? answer.server : '');
      _p.moved ||= !ok || _p.servers.size > 1; // rule 9
    }
    if (ok && answer.group && answer.group !== (this._group ||= answer.group)) { // rule 12
      throw new RefusedError(`server ${this._urls[at].host}: its store is not that of the server before`, 'group');
    }
    const unserved = ok && answer.holds?.some((e) => e.status >= 500 || e.result === 'unknown');
    const next = !ok || status >= 500 || unserved || answer.draining; // rule 11
    if (next && this._at === at) this._at = (at + 1) % this._urls.length;
    return ok && status < 500 ? { c0, status, answer } : { c0, status: 0, answer: {} };
  }

  _begin(hold, c0, now, answer) {
    if (hold._p.state !== 'asking' || !hold._claim(c0, answer.left_ms, now)) return false;
    hold.token = answer.token;
    Object.assign(hold._p, { state: 'held', granted: now });
    this._holds.add(hold);
    this._plan();
    return true;
  }

  _plan() {
    clearTimeout(this._timer);
    const next = [...this._holds].map((h) => Math.min(h._p.due, h.inDoubt ? h.until : h.until - h.ttl / 4));
    const wait = Math.min(60000, Math.max(0, Math.min(...next) - this._clock()));
    if (next.length > 0) this._timer = setTimeout(() => this._step(), wait);
  }

  // Renews what is due, and tells doubts and losses.
  _step() {
    const now = this._clock();
    for (const hold of [...this._holds]) {
      hold._expire();
      if (hold.inDoubt || now < hold.until - hold.ttl / 4 || now >= hold.until) continue;
      hold.inDoubt = true; // rule 17
      this._tell(hold._p.options.onDoubt, hold);
    }
    const soon = [...this._holds].some((h) => h._p.due <= now); // what is due soon travels with it
    const due = [...this._holds].filter((h) => soon && h._p.due <= now + h.ttl / 20);
    for (const hold of due) hold._p.due = Infinity; // until _renew has an answer
    while (due.length > 0) this._renew(due.splice(0, 100)); // rule 15
    this._plan();
  }

  async _renew(due) {
    const limit = Math.min(5000, Math.max(50, Math.min(...due.map((h) => h.ttl)) / 6)); // rule 7
    try {
      const known = due.filter((h) => !h._p.resumes);
      const ids = { holds: known.map((h) => h.id) };
      const got = known.length > 0 ? await this._ask(known, '/v1/renew', ids, limit) : {};
      for (const hold of due) {
        let c0 = got.c0;
        let entry = got.status === 200 ? got.answer.holds[known.indexOf(hold)] ?? {} : {};
        if (hold._p.resumes || entry.code === 'unknown_hold' || entry.state === 'waiting') { // rule 18
          const body = this._body(hold, { resume: hold.token, wait_ms: 0 });
          ({ c0, answer: entry } = await this._ask([hold], '/v1/acquire', body, limit));
          hold._p.resumes = entry.state !== 'held';
        }
        this._answered(hold, c0, entry);
      }
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
    } finally {
      const now = this._clock();
      for (const { _p, ttl } of due) if (_p.due === Infinity || _p.due <= now) _p.due = now + jitter(ttl / 20);
      this._plan();
    }
  }

  // Believes an answer to a renewal, or does not.
  _answered(hold, c0, entry) {
    const now = this._clock();
    const says = entry.state === 'held';
    const ours = says && entry.token === hold.token;
    if (ours && hold._p.state === 'held' && now < hold.until) hold._claim(c0, entry.left_ms, now); // rule 6
    else if ((says && hold._p.state !== 'released') || ['lost', 'released'].includes(entry.code)) {
      this._lose(hold, entry.reason || (ours ? 'expired' : 'gone'));
      if (says) this._end(hold); // rule 6: the loss is final
    }
  }

  _lose(hold, reason) {
    if (hold._p.state !== 'held') return;
    hold._p.state = 'lost';
    hold.reason = reason;
    this._holds.delete(hold);
    this._end(hold);
    hold._abort.abort(new LostError(`lock ${hold.name}: the hold has ended: ${reason}`, reason));
    this._tell(hold._p.options.onLoss, hold);
  }

  _tell(listener, hold) {
    if (listener) queueMicrotask(() => listener(hold));
  }

  // Releases an id, wherever it stands (rules 9, 10 and 16).
  async _end(hold) {
    if (this._holds.delete(hold)) this._plan();
    if (hold._p.state !== 'lost') hold._p.state = 'released';
    const limit = Math.min(5000, hold.ttl / 3);
    for (const end = this._clock() + limit; this._clock() < end; await this._pause(jitter(hold.ttl / 20))) {
      const body = { holds: [{ id: hold.id, name: hold.name, moved: hold._p.moved }] };
      const rest = Math.min(Math.max(50, limit / 2), end - this._clock());
      const { status, answer } = await this._ask([hold], '/v1/release', body, rest).catch(() => ({}));
      const result = status === 200 ? answer.holds[0].result : '';
      if (result === 'released' || (result === 'gone' && hold._p.moved)) return 'released';
      if (result === 'gone') hold.reason ||= 'gone';
      if (result === 'gone') return 'lost';
    }
    return 'unknown';
  }
}
