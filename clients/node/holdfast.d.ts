/** What the server said, as far as it is known; `holder` may say who holds. */
export interface Answer {
  detail?: string;
  holder?: { principal?: string; host?: string; pid?: number; note?: string };
  [field: string]: unknown;
}

/** The base of this module's errors. `code` is the server's, or the reason of a loss. */
export class HoldfastError extends Error {
  readonly code: string;
  readonly answer: Answer;
}
/** Others hold the lock. */
export class HeldError extends HoldfastError {}
/** The hold has ended; `code` is expired, gone, max_hold or released. */
export class LostError extends HoldfastError {}
/** The servers refuse the request, or belong to different stores: the program has to be changed. */
export class RefusedError extends HoldfastError {}
/** No server has answered for a TTL. */
export class UnavailableError extends HoldfastError {}

/** A lock that is held. */
export class Hold {
  private constructor();
  readonly name: string;
  readonly id: string;
  /** The lease in milliseconds. */
  readonly ttl: number;
  /** The fencing token, greater than that of every earlier holder. */
  readonly token: number;
  /** The end of the claim, in milliseconds of a clock that only the module reads. */
  readonly until: number;
  /** No renewal was confirmed until a quarter of the TTL before the end. */
  readonly inDoubt: boolean;
  /** Why the hold was lost, or empty. */
  readonly reason: string;
  /** Aborts with the loss, a LostError. */
  readonly signal: AbortSignal;
  /** Throws LostError if the lock may be another's by now. It compares clocks. */
  check(): void;
  /** Gives the lock up, in a third of the TTL, 5 s at most. */
  release(): Promise<'released' | 'lost' | 'unknown'>;
}

export interface LockOptions {
  /** Milliseconds to wait; Infinity by default, 0: not at all. */
  wait?: number;
  /** The lease in milliseconds. */
  ttl?: number;
  /** Ends the wait. */
  signal?: AbortSignal;
  kind?: 'mutex' | 'read' | 'write' | 'permits';
  permits?: number;
  of?: number;
  note?: string;
  pinned?: boolean;
  max_hold_ms?: number;
  onDoubt?: (hold: Hold) => void;
  onLoss?: (hold: Hold) => void;
}

/** A client of lock servers over one store. */
export class Locks {
  constructor(
    servers: string | string[],
    options?: {
      /** A bearer token, or a function that returns it. */
      token?: string | (() => string);
      /** The lease in milliseconds, 30,000 by default. */
      ttl?: number;
      /** Options of node:tls, such as `ca`, `cert` and `key`. */
      tls?: { ca?: string | Uint8Array; cert?: string | Uint8Array; key?: string | Uint8Array };
    },
  );
  readonly ttl: number;
  /** Waits for the lock, calls work with the hold, releases it; LostError if it was lost. */
  lock<T>(name: string, work: (hold: Hold) => T | Promise<T>, options?: LockOptions): Promise<T>;
  /** Waits for the lock. The program has to release the hold. */
  acquire(name: string, options?: LockOptions): Promise<Hold>;
}
