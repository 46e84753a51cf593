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
let base = 0;
try {
  base = uptime() - monotonic();
  drift = Date.now() - monotonic();
} catch {
  base = NaN; // no Linux: the clock of the system counts suspends
}
function boottime() {
  const now = monotonic();
  if (!Number.isNaN(base) && Math.abs(Date.now() - now - drift) > 50) {
    drift = Date.now() - now;
    asleep = Math.max(asleep, uptime() - now - base - 20);
  }
  return now + asleep;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const jitter = (ms) => ms * (0.5 + Math.random());
const trusted = (left) => left - left / 100 - Math.min(left / 100, 20); // rule 3

/** A lock that is held. */
export class Hold {
  constructor(locks, name, ttl, fields, options, id) {
    Object.assign(this, { name, ttl, id, token: 0, until: 0, inDoubt: false, reason: '' });
    this._p = { locks, fields, options, count: 1, state: 'asking', due: 0, granted: 0, asked: false, moved: false, resumes: false, servers: new Set() };
    this._abort = new AbortController();
    this.signal = this._abort.signal;
    for (const key of ['_p', '_abort']) Object.defineProperty(this, key, { enumerable: false });
  }

  /** Throws LostError if the lock may be another's by now. It compares clocks. */
  check() {
    const { locks, state } = this._p;
    if (state === 'held' && locks._clock() >= this.until) locks._lose(this, 'expired'); // rule 6
    if (this._p.state !== 'held') {
      const why = this.reason || 'released';
      throw new LostError(`lock ${this.name}: the hold has ended: ${why}`, why);
    }
  }

  /** Gives the lock up: 'released', 'lost' or 'unknown'. */
  async release() {
    const { locks, state } = this._p;
    if (--this._p.count > 0 || state === 'released') return 'released'; // rule 13
    if (state === 'held' && locks._clock() >= this.until) locks._lose(this, 'expired');
    return this.reason ? 'lost' : locks._end(this);
  }
}

/** A client of lock servers over one store. */
export class Locks {
  constructor(servers, { token, ttl = 30000, tls = {} } = {}) {
    this._urls = [servers].flat().map((s) => {
      let url;
      try {
        url = new URL(s);
      } catch {
        url = {};
      }
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
    const hidden = { _token: token, _tls: tls, _clock: boottime, _pause: pause, _at: 0, _group: '', _holds: new Set(), _timer: undefined };
    Object.assign(hidden, { _client: randomBytes(24).toString('base64url'), _pid: process.pid, _count: 0, _nested: new AsyncLocalStorage() }); // rule 1
    for (const [key, value] of Object.entries(hidden)) Object.defineProperty(this, key, { value, writable: true });
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
    if ((await hold.release()) === 'lost') {
      throw new LostError(`lock ${name}: the hold ended too early: ${hold.reason || 'gone'}`, hold.reason || 'gone');
    }
    return result;
  }

  /** Waits for the lock and returns the hold, which the program has to release. */
  async acquire(name, { wait = Infinity, ttl = this.ttl, signal, ...options } = {}) {
    const { onDoubt, onLoss, ...fields } = options;
    if (this._pid !== process.pid) Object.assign(this, { _pid: process.pid, _client: randomBytes(24).toString('base64url') }); // rule 2
    const fresh = () => new Hold(this, name, ttl, { ...fields, ttl_ms: ttl }, { onDoubt, onLoss }, `${this._client}.${++this._count}`);
    let hold = fresh();
    let heard = this._clock();
    const end = heard + wait;
    const stop = () => hold._p.asked && this._end(hold); // rule 10: the release overtakes the poll
    signal?.addEventListener('abort', stop, { once: true });
    try {
      for (;;) {
        signal?.throwIfAborted();
        const most = Math.max(0, Math.min(10000, Math.max(1000, ttl / 3), end - this._clock()));
        const way = wait === 0 ? { try: true } : { wait_ms: Math.floor(most) };
        const got = await this._ask([hold], '/v1/acquire', this._body(hold, way), most + 5000);
        const now = this._clock();
        const { c0 = 0, status = 0, answer = {} } = got ?? {};
        signal?.throwIfAborted();
        if (got) heard = now;
        if (status === 200 && answer.state === 'held') {
          if (this._begin(hold, c0, now, answer)) return hold;
          await this._end(hold); // rule 5
          hold = fresh();
        } else if (status === 410 || answer.code === 'id_in_use') hold = fresh();
        else if (![0, 202, 425, 429].includes(status)) {
          hold._p.asked = hold._p.moved; // without a missed answer, the server has no place of this id
          const Kind = status === 409 && answer.code === 'held' ? HeldError : RefusedError;
          throw new Kind(`lock ${name}: ${answer.detail ?? answer.code ?? status}`, answer.code, answer);
        }
        if (now >= end && got) throw new HeldError(`lock ${name}: the wait is over`, 'held', answer);
        if (now >= end || now - heard >= ttl) throw new UnavailableError(`lock ${name}: no server answers`);
        if (![200, 202, 410].includes(status)) await this._pause(jitter(Math.min(1000, ttl / 20)));
      }
    } finally {
      signal?.removeEventListener('abort', stop);
      if (hold._p.state === 'asking' && hold._p.asked) await this._end(hold); // rule 10
    }
  }

  _body(hold, more) {
    return { id: hold.id, name: hold.name, ...hold._p.fields, host: hostname(), pid: process.pid, ...more };
  }

  _bearer() {
    const token = ((typeof this._token === 'function' ? this._token() : this._token) ?? '').trim(); // a file ends with a new line
    if (!/^[!-~]*$/.test(token)) throw new RefusedError('token: it has characters that a header cannot have', 'token');
    return token ? { Authorization: `Bearer ${token}` } : {};
  }

  // Sends a request, and resolves to the status, the headers and the text of the answer.
  _send(at, path, body, limit, bearer) {
    const url = new URL(path, this._urls[at]);
    const headers = { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body), ...bearer };
    return new Promise((done, fail) => {
      const request = (url.protocol === 'https:' ? https : http).request(url, { ...this._tls, method: 'POST', headers, port: this._urls[at].listens, agent: false });
      const guard = setTimeout(() => request.destroy(new Error('no answer in time')), limit);
      request.on('error', fail).on('close', () => clearTimeout(guard) ?? fail(new Error('the answer is truncated')));
      request.on('response', (response) => {
        const parts = [];
        response.on('data', (part) => parts.push(part)).on('error', fail);
        response.on('end', () => response.complete && response.headers['content-length'] && done({ status: response.statusCode, headers: response.headers, text: Buffer.concat(parts).toString() }));
      });
      request.end(body);
    });
  }

  // Sends a request: { c0, status, answer }; undefined if it is the next server's turn.
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
    const ok = answer !== null && typeof answer === 'object' && (status >= 300 || ('group' in answer && 'server' in answer));
    for (const { _p } of holds) {
      _p.servers.add(ok ? answer.server : '');
      _p.moved ||= !ok || _p.servers.size > 1; // rule 9
    }
    if (ok && answer.group && answer.group !== (this._group ||= answer.group)) { // rule 12
      throw new RefusedError(`server ${this._urls[at].host}: its store is not that of the server before`, 'group');
    }
    const unserved = ok && answer.holds?.some((e) => e.status >= 500 || e.result === 'unknown');
    if ((!ok || status >= 500 || unserved || answer.draining) && this._at === at) this._at = (at + 1) % this._urls.length; // rule 11
    return ok && status < 500 ? { c0, status, answer } : undefined;
  }

  _begin(hold, c0, now, answer) {
    const until = c0 + trusted(answer.left_ms);
    if (now >= until || hold._p.state !== 'asking') return false;
    Object.assign(hold, { token: answer.token, until });
    Object.assign(hold._p, { state: 'held', granted: now, due: Math.max(c0, until - hold.ttl) + hold.ttl / 3 }); // rule 7
    this._holds.add(hold);
    this._plan();
    return true;
  }

  _plan() {
    clearTimeout(this._timer);
    const next = [...this._holds].map((h) => Math.min(h._p.due, h.inDoubt ? h.until : h.until - h.ttl / 4));
    if (next.length > 0) this._timer = setTimeout(() => this._step(), Math.min(60000, Math.max(0, Math.min(...next) - this._clock())));
  }

  // Renews what is due, and tells doubts and losses.
  _step() {
    const now = this._clock();
    for (const hold of [...this._holds]) {
      if (now >= hold.until) this._lose(hold, 'expired');
      else if (!hold.inDoubt && now >= hold.until - hold.ttl / 4) {
        hold.inDoubt = true; // rule 17
        this._tell(hold._p.options.onDoubt, hold);
      }
    }
    const live = [...this._holds];
    const soon = live.some((h) => h._p.due <= now); // what is due soon travels with it
    const due = live.filter((h) => soon && h._p.due <= now + h.ttl / 20);
    const limit = Math.min(5000, Math.max(50, Math.min(...live.map((h) => h.ttl)) / 6));
    for (const hold of due) hold._p.due = Infinity; // until _renew has an answer
    while (due.length > 0) this._renew(due.splice(0, 100), limit); // rule 15
    this._plan();
  }

  async _renew(due, limit) {
    try {
      const known = due.filter((h) => !h._p.resumes);
      const got = known.length > 0 ? await this._ask(known, '/v1/renew', { holds: known.map((h) => h.id) }, limit) : undefined;
      const entries = got?.status === 200 ? got.answer.holds : [];
      for (const hold of due) {
        const entry = hold._p.resumes ? { code: 'unknown_hold' } : entries[known.indexOf(hold)] ?? {};
        if (entry.code === 'unknown_hold' || entry.state === 'waiting') { // rule 18
          const more = { resume: hold.token, wait_ms: 0 };
          if (hold._p.fields.max_hold_ms) more.max_hold_ms = Math.max(1, Math.floor(hold._p.granted + hold._p.fields.max_hold_ms - this._clock()));
          const again = await this._ask([hold], '/v1/acquire', this._body(hold, more), limit);
          hold._p.resumes = again?.answer.state !== 'held';
          this._answered(hold, again?.c0 ?? 0, again?.answer ?? {});
        } else this._answered(hold, got?.c0 ?? 0, entry);
      }
    } catch (error) {
      if (!(error instanceof RefusedError)) throw error;
    } finally {
      for (const { _p, ttl } of due) if (_p.due === Infinity || _p.due <= this._clock()) _p.due = this._clock() + jitter(ttl / 20);
      this._plan();
    }
  }

  // Believes an answer to a renewal, or does not.
  _answered(hold, c0, entry) {
    const now = this._clock();
    const says = entry.state === 'held';
    const ours = says && entry.token === hold.token;
    if (ours && hold._p.state === 'held' && now < hold.until) { // rules 4 to 6
      const until = c0 + trusted(entry.left_ms);
      if (hold.until < until && now < until) {
        Object.assign(hold, { until, inDoubt: false });
        hold._p.due = Math.max(c0, until - hold.ttl) + hold.ttl / 3; // rule 7
      }
    } else if ((says && hold._p.state !== 'released') || ['lost', 'released'].includes(entry.code)) {
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
      const got = await this._ask([hold], '/v1/release', body, Math.min(Math.max(50, limit / 2), end - this._clock())).catch(() => undefined);
      const result = got?.status === 200 ? got.answer.holds[0].result : '';
      if (result === 'released' || (result === 'gone' && hold._p.moved)) return 'released';
      if (result === 'gone') {
        hold.reason ||= 'gone';
        return 'lost';
      }
    }
    return 'unknown';
  }
}
