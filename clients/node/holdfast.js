// Locks of a Holdfast lock server. Comments number the rules of clients/README.md.
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
    Object.assign(this, { name: new.target.name, code, answer });
  }
}
export class HeldError extends HoldfastError {}
export class LostError extends HoldfastError {}
export class RefusedError extends HoldfastError {}
export class UnavailableError extends HoldfastError {}

// Elapsed milliseconds, with those of suspends (rule 8). process.hrtime leaves these out, so
// /proc/uptime is read once the wall clock has drifted from it, by a suspend or a step.
const monotonic = () => Number(process.hrtime.bigint()) / 1e6;
const slept = () => Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]) * 1000 - monotonic();
const isLinux = process.platform === 'linux'; // elsewhere the clock counts suspends
const base = isLinux ? slept() : 0;
let drift = Date.now() - monotonic();
let asleep = 0;
function boottime() {
  const now = monotonic();
  if (isLinux && Math.abs(Date.now() - now - drift) > 50) {
    asleep = Math.max(asleep, slept() - base - 20);
    drift = Date.now() - now;
  }
  return now + asleep;
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const jitter = (ms) => ms * (0.5 + Math.random());

/** A lock that is held. */
export class Hold {
  #abort = new AbortController();

  constructor(locks, name, { ttl = locks.ttl, onDoubt, onLoss, ...fields }) {
    Object.assign(this, { name, ttl, id: locks._freshId(), signal: this.#abort.signal });
    Object.assign(this, { token: 0, until: 0, inDoubt: false, reason: '' });
    const begin = { state: 'asking', count: 1, due: 0, granted: 0, server: '', moved: false };
    const value = { ...begin, locks, onDoubt, onLoss, fields: { ...fields, ttl_ms: ttl } };
    Object.defineProperty(this, '_p', { value }); // not listed, nor printed
  }

  // Takes over the end of the claim that an answer tells, if it is later, and to come.
  _claim(c0, left, now) {
    const until = c0 + left - left / 100 - Math.min(left / 100, 20); // rule 3
    if (until <= Math.max(this.until, now)) return false; // rules 4 and 5
    Object.assign(this, { until, inDoubt: false });
    this._p.due = Math.max(c0, until - this.ttl) + this.ttl / 3; // rule 7
    return true;
  }

  _lose(reason) {
    if (this._p.state !== 'held') return;
    this._p.state = 'lost';
    this.reason = reason;
    this._p.locks._end(this);
    this.#abort.abort(new LostError(`lock ${this.name}: the hold has ended: ${reason}`, reason));
    if (this._p.onLoss) queueMicrotask(() => this._p.onLoss(this));
  }

  _isHeld() {
    const { locks, state } = this._p;
    if (state === 'held' && locks._clock() >= this.until) this._lose('expired'); // rule 6
    return this._p.state === 'held';
  }

  /** Throws LostError if the lock may be another's by now. It compares clocks. */
  check() {
    if (this._isHeld()) return;
    const why = this.reason || 'released';
    throw new LostError(`lock ${this.name}: the hold has ended: ${why}`, why);
  }

  /** Gives the lock up: 'released', 'lost' or 'unknown'. */
  async release() {
    if (--this._p.count > 0 || this._p.state === 'released') return 'released'; // rule 13
    if (!this._isHeld()) return 'lost';
    this._p.state = 'released';
    return this._p.locks._end(this);
  }
}

/** A client of lock servers over one store. */
export class Locks {
  #token;
  #tls;
  #nested = new AsyncLocalStorage();
  #client = randomBytes(24).toString('base64url'); // rule 1; Node does not fork (rule 2)
  #tries = 0;
  _freshId = () => `${this.#client}.${++this.#tries}`;

  constructor(servers, { token, ttl = 30000, tls = {} } = {}) {
    this._urls = [servers].flat().map((server) => {
      const address = /^(https?:)\/\/([\w.-]+|\[[\da-f:.]+\])(?::(\d+))?\/?$/i.exec(server);
      if (!address) throw new TypeError('server: want http://HOST:PORT or https://HOST:PORT');
      const [, protocol, host, port = 7420] = address;
      if (token && protocol === 'http:' && !/^(127\.0\.0\.1|\[::1\]|localhost)$/.test(host)) {
        throw new TypeError('server: a token travels by https:// only'); // rule 14
      }
      return { protocol, hostname: host.replace(/[[\]]/g, ''), port, agent: false };
    });
    if (this._urls.length === 0) throw new TypeError('servers: none is given');
    [this.#token, this.#tls] = [token, tls];
    Object.assign(this, { ttl, _clock: boottime, _pause: pause, _at: 0, _group: '' });
  }

  /** Waits for the lock, calls work with the hold, releases it, and returns what work returned. */
  async lock(name, work, options = {}) {
    const key = JSON.stringify([name, options.kind]);
    const nested = this.#nested.getStore() ?? new Map();
    let hold = nested.get(key);
    if (hold && hold._p.state !== 'released') {
      hold.check();
      hold._p.count++; // rule 13
    } else hold = await this.acquire(name, options);
    let result;
    try {
      result = await this.#nested.run(new Map(nested).set(key, hold), () => work(hold));
    } catch (error) {
      await hold.release();
      throw error;
    }
    if ((await hold.release()) !== 'lost') return result;
    throw new LostError(`lock ${name}: the hold ended too early: ${hold.reason}`, hold.reason);
  }

  /** Waits for the lock and returns the hold, which the program has to release. */
  async acquire(name, { wait = Infinity, signal, ...options } = {}) {
    let hold = new Hold(this, name, options);
    const { ttl } = hold;
    let [heard, missed] = [this._clock(), 0];
    const end = heard + wait;
    const stop = () => { // rule 10: the release overtakes the poll
      hold._p.state = 'released';
      this._end(hold);
    };
    signal?.throwIfAborted();
    signal?.addEventListener('abort', stop, { once: true });
    try {
      for (;;) {
        const rest = Math.max(0, Math.min(10000, Math.max(1000, ttl / 3), end - this._clock()));
        const way = wait === 0 ? { try: true } : { wait_ms: Math.floor(rest) };
        const sent = this._ask(hold, '/v1/acquire', this._body(hold, way), rest + 5000);
        const { c0, status, answer } = await sent;
        signal?.throwIfAborted();
        const now = this._clock();
        if (status) heard = now;
        missed = status ? 0 : missed + 1;
        if (status === 200 && hold._claim(c0, answer.left_ms, now)) {
          hold.token = answer.token;
          Object.assign(hold._p, { state: 'held', granted: now });
          this._keep(hold);
          return hold;
        }
        if (status === 200) await this._end(hold); // rule 5
        if ([200, 410].includes(status) || answer.code === 'id_in_use') {
          hold = new Hold(this, name, options);
        } else if (![0, 202, 425, 429].includes(status)) {
          if (!hold._p.moved) hold._p.state = 'refused'; // no server has a place of it
          const Kind = answer.code === 'held' ? HeldError : RefusedError;
          throw new Kind(`lock ${name}: ${answer.detail ?? answer.code}`, answer.code, answer);
        }
        const over = now >= end || now - heard >= ttl;
        if (over && status) throw new HeldError(`lock ${name}: the wait is over`, 'held', answer);
        const silent = over && missed >= this._urls.length;
        if (silent) throw new UnavailableError(`lock ${name}: no server answers`);
        if (![200, 202, 410].includes(status)) await this._pause(jitter(Math.min(1000, ttl / 20)));
      }
    } finally {
      signal?.removeEventListener('abort', stop);
      if (hold._p.state === 'asking') await this._end(hold); // rule 10
    }
  }

  _body({ id, name, _p }, more) {
    const body = { id, name, ..._p.fields, host: hostname(), pid: process.pid, ...more };
    const held = _p.granted ? Math.floor(this._clock() - _p.granted) : 0;
    if (body.max_hold_ms) body.max_hold_ms -= held;
    return body;
  }

  // Sends a request, and resolves to the status, the headers and the text of the answer.
  _send(at, path, body, limit) {
    const token = ((typeof this.#token === 'function' ? this.#token() : this.#token) ?? '').trim();
    if (!/^[!-~]*$/.test(token)) {
      throw new RefusedError('token: it has characters that a header cannot have', 'token');
    }
    const headers = { 'Content-Type': 'application/json' };
    if (token) headers.Authorization = `Bearer ${token}`;
    const options = { ...this.#tls, ...this._urls[at], path, method: 'POST', headers };
    return new Promise((done, fail) => {
      const request = (options.protocol === 'https:' ? https : http).request(options);
      const guard = setTimeout(() => request.destroy(new Error('no answer in time')), limit);
      request.on('close', () => clearTimeout(guard) ?? fail(new Error('a truncated answer')));
      request.on('error', fail).on('response', (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (part) => (text += part)).on('error', fail);
        response.on('end', () => {
          const { statusCode: status, headers, complete } = response;
          if (complete && headers['content-length']) done({ status, headers, text });
        });
      });
      request.end(body);
    });
  }

  // Asks a server about a hold: { c0, status, answer }. Status 0: it is the next one's turn.
  async _ask(hold, path, body, limit) {
    const [at, c0, { _p }] = [this._at, this._clock(), hold];
    let answer = {};
    try {
      const got = await this._send(at, path, JSON.stringify(body), limit);
      if (got.headers.holdfast === '1') { // rule 11: else a proxy answered
        const { holds: [entry] = [], ...all } = JSON.parse(got.text);
        answer = { status: got.status, ...all, ...entry };
      }
    } catch (error) {
      if (error instanceof RefusedError) throw error;
    }
    const { status = 0, server, group, draining, result } = answer;
    _p.moved ||= !server || server !== (_p.server ||= server); // rule 9
    if (group && group !== (this._group ||= group)) { // rule 12
      throw new RefusedError(`server ${this._urls[at].hostname}: it has another store`, 'group');
    }
    const away = !server || status >= 500 || result === 'unknown'; // rule 11
    if ((away || draining) && this._at === at) this._at = (at + 1) % this._urls.length;
    return away ? { c0, status: 0, answer: {} } : { c0, status, answer };
  }

  // Renews a hold when that is due, and tells its doubt and its loss.
  _keep(hold) {
    const { _p, until, ttl } = hold;
    if (!hold._isHeld()) return;
    const now = this._clock();
    if (!hold.inDoubt && now >= until - ttl / 4) {
      hold.inDoubt = true; // rule 17
      if (_p.onDoubt) queueMicrotask(() => _p.onDoubt(hold));
    }
    if (now >= _p.due) {
      _p.due = Infinity; // until there is an answer
      this._renew(hold).then(() => this._keep(hold));
    }
    clearTimeout(_p.timer);
    const next = Math.min(_p.due, hold.inDoubt ? until : until - ttl / 4);
    _p.timer = setTimeout(() => this._keep(hold), next - now);
  }

  async _renew(hold) {
    const { _p, id, ttl } = hold;
    const limit = Math.min(5000, Math.max(50, ttl / 6)); // rule 7
    let got = { answer: {} };
    try {
      if (!_p.resumes) got = await this._ask(hold, '/v1/renew', { holds: [id] }, limit);
      const { code, state } = got.answer;
      if (_p.resumes || code === 'unknown_hold' || state === 'waiting') { // rule 18
        const body = this._body(hold, { resume: hold.token, wait_ms: 0 });
        got = await this._ask(hold, '/v1/acquire', body, limit);
        _p.resumes = got.answer.state !== 'held';
      }
    } catch {} // another store: the claim goes on until its end
    const { c0, status, answer } = got;
    const now = this._clock();
    const says = answer.state === 'held';
    if (!hold._isHeld()) {
      if (says && _p.state === 'lost') this._end(hold); // rule 6: the loss is final
    } else if (says && answer.token === hold.token) hold._claim(c0, answer.left_ms, now);
    else if (says || status === 410) hold._lose(answer.reason ?? 'gone');
    if (_p.due === Infinity || _p.due <= now) _p.due = now + jitter(ttl / 20);
  }

  // Releases an id, wherever it stands (rules 9, 10 and 16).
  async _end(hold) {
    const { _p, id, name, ttl } = hold;
    clearTimeout(_p.timer);
    const limit = Math.min(5000, ttl / 3);
    const end = this._clock() + limit;
    for (let now; (now = this._clock()) < end; await this._pause(jitter(ttl / 20))) {
      const body = { holds: [{ id, name, moved: _p.moved }] };
      const rest = Math.min(Math.max(50, limit / 2), end - now);
      const sent = this._ask(hold, '/v1/release', body, rest);
      const { result } = (await sent.catch(() => ({ answer: {} }))).answer;
      if (result === 'released' || (result === 'gone' && _p.moved)) return 'released';
      if (result === 'gone') {
        hold.reason ||= 'gone';
        return 'lost';
      }
    }
    return 'unknown';
  }
}
