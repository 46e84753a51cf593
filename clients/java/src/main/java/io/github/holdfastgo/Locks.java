package io.github.holdfastgo;

import static java.util.stream.Collectors.*;

import java.io.IOException;
import java.net.*;
import java.net.http.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.concurrent.locks.LockSupport;
import java.util.function.*;
import javax.net.ssl.SSLContext;

/**
 * Locks of a Holdfast lock server. A Locks is a client of servers over one store, and safe for concurrent use.
 * Numbers in comments are those of the rules in clients/README.md.
 */
public final class Locks {
  /** The base of the exceptions of this class; code is the server's, or the reason of a loss. */
  public static class HoldfastException extends RuntimeException {
    public final String code;
    HoldfastException(String text, String code) { super(text); this.code = code; }
  }
  /** Others hold the lock. */
  public static class HeldException extends HoldfastException { HeldException(String t) { super(t, "held"); } }
  /** The hold has ended; code is expired, gone, max_hold or released. */
  public static class LostException extends HoldfastException { LostException(String t, String c) { super(t, c); } }
  /** The servers refuse the request, or belong to different stores: the program has to be changed. */
  public static class RefusedException extends HoldfastException {
    RefusedException(String t, String c) { super(t, c); }
  }
  /** No server has answered for a TTL. */
  public static class UnavailableException extends HoldfastException {
    UnavailableException(String t) { super(t, ""); }
  }

  /** An answer: its status, whether a lock server signed it, and its fields, an entry of a batch each. */
  static final class Answer {
    static final Answer NONE = new Answer(0, false, "");
    final int status;
    final boolean signed;
    final List<Map<String, String>> parts;
    double sent; // when it was asked for
    Answer(int status, boolean signed, String text) {
      this.status = status;
      this.signed = signed;
      parts = Arrays.stream(text.split("\n\n", -1)).map(part -> part.lines().filter(line -> line.contains("="))
          .collect(toMap(line -> line.split("=", 2)[0], line -> line.split("=", 2)[1], (a, b) -> b))).collect(toList());
    }
    String get(String key) { return parts.get(parts.size() - 1).getOrDefault(key, ""); }
  }
  interface Sender { Answer send(int at, String path, String form, double limit) throws IOException; }

  private final List<URI> urls;
  private final Supplier<String> token;
  private final HttpClient http;
  private final double ttl;
  // Rule 1. A JVM does not fork, so it has no need of rule 2.
  private final String client = (UUID.randomUUID() + "" + UUID.randomUUID()).replace("-", "");
  private final String host = System.getenv().getOrDefault("HOSTNAME", ""), pid = "" + ProcessHandle.current().pid();
  private final AtomicLong tries = new AtomicLong();
  private final Map<List<Object>, Hold> nested = new ConcurrentHashMap<>(); // by thread, name and kind
  private final List<Hold> holds = new ArrayList<>(); // guarded by this, as are group and the states of holds
  private volatile int at;
  private String group = "";
  boolean running;
  private Thread loop;
  DoubleSupplier clock = BootClock::now;
  Sender sender = this::sendHttp;
  DoubleConsumer sleeper = ms -> LockSupport.parkNanos((long) (ms * 1e6)); // an interrupt ends it

  public Locks(String... servers) { this(List.of(servers), null, Duration.ofSeconds(30), null); }

  /** token: a bearer token, or null; ttl: the lock of a dead process is free after it; tls: null verifies. */
  public Locks(List<String> servers, Supplier<String> token, Duration ttl, SSLContext tls) {
    if (servers.isEmpty()) throw new IllegalArgumentException("servers: none is given");
    urls = servers.stream().map(server -> address(server, token != null)).collect(toList());
    this.token = token;
    this.ttl = ttl.toMillis();
    HttpClient.Builder builder = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1);
    http = (tls == null ? builder : builder.sslContext(tls)).build();
  }

  private static URI address(String server, boolean secret) {
    URI url = URI.create(server);
    if (url.getHost() == null || !Set.of("http", "https").contains(url.getScheme()) || url.getUserInfo() != null
        || url.getQuery() != null || !url.getPath().replace("/", "").isEmpty())
      throw new IllegalArgumentException("server: an address is http://HOST:PORT or https://HOST:PORT");
    boolean here = Set.of("127.0.0.1", "[::1]", "localhost").contains(url.getHost());
    if (secret && !here && url.getScheme().equals("http")) // rule 14
      throw new IllegalArgumentException("server: a token travels by https:// only");
    return URI.create(url.getScheme() + "://" + url.getHost() + ":" + (url.getPort() < 0 ? 7420 : url.getPort()));
  }

  /** Waits for the lock. */
  public Hold lock(String name) throws InterruptedException { return lock(name, null, Map.of()); }

  /** Waits for the lock: wait null for ever, zero not at all. fields: ttl_ms, kind, permits, of, note, max_hold_ms. */
  public Hold lock(String name, Duration wait, Map<String, String> fields) throws InterruptedException {
    List<Object> key = List.of(Thread.currentThread(), name, fields.getOrDefault("kind", "mutex"));
    Hold hold = nested.get(key);
    if (hold == null || hold.state.equals("released")) nested.put(key, hold = acquire(name, wait, fields));
    else hold.check();
    hold.count.incrementAndGet(); // rule 13
    return hold;
  }

  private Hold acquire(String name, Duration wait, Map<String, String> fields) throws InterruptedException {
    Hold h = new Hold(name, fields);
    double heard = clock.getAsDouble(), end = heard + (wait == null ? 1e15 : wait.toMillis());
    try {
      for (int missed = 0; ; ) {
        double most = Math.max(0, Math.min(Math.min(10000, Math.max(1000, h.ttl / 3)), end - clock.getAsDouble()));
        String way = wait != null && wait.isZero() ? "&try=true" : "&wait_ms=" + (long) most;
        Answer a = ask(List.of(h), "/v1/acquire", h.form() + way, most + 5000);
        double now = clock.getAsDouble();
        if (Thread.interrupted()) throw new InterruptedException();
        missed = a.status != 0 ? 0 : missed + 1;
        if (missed == 0) heard = now;
        if (a.status == 200 && a.get("state").equals("held")) {
          if (begin(h, a, now)) return h;
          end(h); // rule 5
        }
        if (Set.of(200, 410).contains(a.status) || a.get("code").equals("id_in_use")) {
          h = new Hold(name, fields);
        } else if (!Set.of(0, 202, 425, 429).contains(a.status)) {
          h.asked = h.moved; // without a missed answer, the server has no place of this id
          String text = "lock " + name + ": " + (a.get("detail").isEmpty() ? a.get("code") : a.get("detail"));
          throw a.get("code").equals("held") ? new HeldException(text) : new RefusedException(text, a.get("code"));
        }
        boolean over = now >= end || now - heard >= h.ttl;
        if (over && missed == 0) throw new HeldException("lock " + name + ": the wait is over");
        if (over && missed >= urls.size()) throw new UnavailableException("lock " + name + ": no server answers");
        if (!Set.of(200, 202, 410).contains(a.status)) sleeper.accept(jitter(Math.min(1000, h.ttl / 20)));
      }
    } finally {
      if (h.state.equals("asking") && h.asked) end(h); // rule 10
    }
  }

  private String bearer() {
    String text = token.get().strip(); // a file ends with a new line
    if (text.matches("[!-~]+")) return "Bearer " + text;
    throw new RefusedException("token: it has characters that a header cannot have", "token");
  }

  private Answer sendHttp(int at, String path, String form, double limit) throws IOException {
    var request = HttpRequest.newBuilder(urls.get(at).resolve(path)).POST(HttpRequest.BodyPublishers.ofString(form))
        .header("Content-Type", "application/x-www-form-urlencoded").header("Accept", "text/plain");
    if (token != null) request.header("Authorization", bearer());
    var reply = http.sendAsync(request.build(), HttpResponse.BodyHandlers.ofString());
    try {
      HttpResponse<String> r = reply.get((long) limit, TimeUnit.MILLISECONDS);
      if (r.headers().firstValue("Content-Length").isEmpty()) throw new IOException("it may be truncated");
      return new Answer(r.statusCode(), r.headers().firstValue("Holdfast").orElse("").equals("1"), r.body());
    } catch (InterruptedException | ExecutionException | TimeoutException e) {
      if (e instanceof InterruptedException) Thread.currentThread().interrupt();
      throw new IOException(e);
    } finally {
      reply.cancel(true);
    }
  }

  /** Sends a request; NONE if it is the next server's turn. */
  private Answer ask(List<Hold> about, String path, String form, double limit) {
    int at = this.at;
    double sent = clock.getAsDouble();
    Answer a = Answer.NONE;
    for (Hold h : about) h.asked = true;
    try {
      a = sender.send(at, path, form, limit);
      a.sent = sent;
    } catch (IOException e) { // the next server
    }
    String server = a.get("server"), of = a.get("group");
    boolean ok = a.signed && (a.status >= 300 || !server.isEmpty() && !of.isEmpty()); // rule 11
    boolean next = !ok || a.status >= 500 || a.get("draining").equals("true") || a.parts.stream().anyMatch(
        e -> e.getOrDefault("status", "").startsWith("5") || "unknown".equals(e.get("result")));
    synchronized (this) {
      for (Hold h : about) {
        h.servers.add(ok ? server : "");
        h.moved |= !ok || h.servers.size() > 1; // rule 9
      }
      if (ok && group.isEmpty()) group = of;
      if (ok && !of.isEmpty() && !of.equals(group)) { // rule 12
        throw new RefusedException("server " + urls.get(at) + ": its store is not that of the server before", "group");
      }
      if (next && this.at == at) this.at = (at + 1) % urls.size();
    }
    return ok && a.status < 500 ? a : Answer.NONE;
  }

  private synchronized boolean begin(Hold h, Answer a, double now) {
    if (!h.state.equals("asking") || !h.claim(a.sent, a.get("left_ms"), now)) return false;
    h.state = "held";
    h.token = Long.parseLong(a.get("token"));
    h.granted = now;
    holds.add(h);
    if (!running) loop = background(this::run);
    running = true;
    LockSupport.unpark(loop);
    return true;
  }

  private void run() { for (double ms; (ms = step()) >= 0; ) LockSupport.parkNanos((long) (ms * 1e6)); }

  /** Renews what is due, and tells doubts and losses. It returns the time to its next turn, and -1 without holds. */
  synchronized double step() {
    double now = clock.getAsDouble();
    for (Hold h : List.copyOf(holds)) {
      h.expire();
      if (h.inDoubt || now < h.until - h.ttl / 4 || now >= h.until) continue;
      h.inDoubt = true; // rule 17
      background(() -> h.doubt.complete(null));
    }
    boolean soon = holds.stream().anyMatch(h -> h.due <= now); // what is due soon travels with it, at most 100: rule 15
    List<Hold> due = holds.stream().filter(h -> soon && h.due <= now + h.ttl / 20).limit(100).collect(toList());
    for (Hold h : due) h.due = Double.MAX_VALUE; // until renew has an answer
    if (!due.isEmpty()) background(() -> renew(due));
    running = !holds.isEmpty();
    double to = holds.stream().mapToDouble(h -> Math.min(h.due, h.until - (h.inDoubt ? 0 : h.ttl / 4))).min().orElse(0);
    return running ? Math.min(60000, Math.max(0, to - now)) : -1;
  }

  private static Thread background(Runnable work) {
    Thread thread = new Thread(work, "holdfast");
    thread.setDaemon(true);
    thread.start();
    return thread;
  }

  void renew(List<Hold> due) {
    double limit = due.stream().mapToDouble(h -> Math.min(5000, Math.max(50, h.ttl / 6))).min().orElse(0); // rule 7
    List<Hold> known = due.stream().filter(h -> !h.resumes).collect(toList());
    String ids = known.stream().map(h -> "id=" + h.id).collect(joining("&"));
    try {
      Answer all = known.isEmpty() ? Answer.NONE : ask(known, "/v1/renew", ids, limit);
      for (Hold h : due) {
        Answer a = all;
        int i = known.indexOf(h);
        Map<String, String> e = i >= 0 && a.status == 200 && i < a.parts.size() ? a.parts.get(i) : Map.of();
        if (h.resumes || "unknown_hold".equals(e.get("code")) || "waiting".equals(e.get("state"))) { // rule 18
          a = ask(List.of(h), "/v1/acquire", h.form() + "&resume=" + h.token + "&wait_ms=0", limit);
          e = a.parts.get(0);
          h.resumes = !"held".equals(e.get("state"));
        }
        answered(h, a.sent, e);
      }
    } catch (RefusedException e) { // the claims go on until their ends
    } finally {
      synchronized (this) {
        double now = clock.getAsDouble();
        for (Hold h : due) if (h.due == Double.MAX_VALUE || h.due <= now) h.due = now + jitter(h.ttl / 20); // rule 7
        LockSupport.unpark(loop);
      }
    }
  }

  /** Believes an answer to a renewal, or does not. */
  private synchronized void answered(Hold h, double sent, Map<String, String> entry) {
    boolean held = "held".equals(entry.get("state")), ours = held && entry.get("token").equals(Long.toString(h.token));
    boolean over = Set.of("lost", "released").contains(entry.getOrDefault("code", ""));
    double now = clock.getAsDouble();
    if (ours && h.state.equals("held") && now < h.until) { // rule 6
      h.claim(sent, entry.get("left_ms"), now);
    } else if (over || held && !h.state.equals("released")) {
      lose(h, entry.getOrDefault("reason", ours ? "expired" : "gone"));
      if (held) background(() -> end(h)); // rule 6: the loss is final
    }
  }

  private synchronized void lose(Hold h, String reason) {
    if (!h.state.equals("held")) return;
    h.state = "lost";
    h.reason = reason;
    holds.remove(h);
    background(() -> end(h));
    background(() -> h.lost.complete(reason));
  }

  /** Releases an id, wherever it stands (rules 9, 10 and 16). */
  private String end(Hold h) {
    synchronized (this) {
      holds.remove(h);
      if (!h.state.equals("lost")) h.state = "released";
    }
    boolean interrupted = false; // the release goes out all the same
    double limit = Math.min(5000, h.ttl / 3), end = clock.getAsDouble() + limit;
    try {
      for (double now = clock.getAsDouble(); now < end; now = clock.getAsDouble()) {
        interrupted |= Thread.interrupted();
        String form = "id=" + h.id + "&name=" + encode(h.name) + "&moved=" + h.moved;
        Answer a = ask(List.of(h), "/v1/release", form, Math.min(Math.max(50, limit / 2), end - now));
        String result = a.parts.get(0).getOrDefault("result", "");
        if (result.equals("released") || result.equals("gone") && h.moved) return "released";
        if (result.equals("gone")) return "lost";
        sleeper.accept(jitter(h.ttl / 20));
      }
    } catch (RefusedException e) { // the lease ends
    } finally {
      if (interrupted) Thread.currentThread().interrupt();
    }
    return "unknown";
  }

  private static String encode(String s) { return URLEncoder.encode(s, StandardCharsets.UTF_8); }
  private static double jitter(double ms) { return ms * ThreadLocalRandom.current().nextDouble(0.5, 1.5); }

  /** A lock that is held. close releases it. */
  public final class Hold implements AutoCloseable {
    public final String name;
    final String id = client + "." + tries.incrementAndGet(); // rule 1
    final double ttl;
    private final Set<String> servers = new HashSet<>();
    private final Map<String, String> fields;
    private final CompletableFuture<String> lost = new CompletableFuture<>();
    private final CompletableFuture<Void> doubt = new CompletableFuture<>();
    private volatile String state = "asking", reason = "";
    private volatile boolean asked, moved, resumes;
    volatile boolean inDoubt;
    volatile double until;
    double due, granted;
    private final AtomicInteger count = new AtomicInteger();
    private long token;

    private Hold(String name, Map<String, String> fields) {
      this.name = name;
      this.fields = fields;
      ttl = fields.containsKey("ttl_ms") ? Long.parseLong(fields.get("ttl_ms")) : Locks.this.ttl;
    }

    private String form() {
      Map<String, String> all = new TreeMap<>(fields);
      all.putAll(Map.of("id", id, "name", name, "host", host, "pid", pid, "ttl_ms", "" + (long) ttl));
      double since = granted > 0 ? clock.getAsDouble() - granted : 0; // a server bounds what is left
      all.computeIfPresent("max_hold_ms", (k, ms) -> "" + Math.max(1, (long) (Long.parseLong(ms) - since)));
      return all.entrySet().stream().map(e -> e.getKey() + "=" + encode(e.getValue())).collect(joining("&"));
    }

    /** Takes over the end of the claim that an answer tells, if it is later than the one before, and to come. */
    private boolean claim(double sent, String leftMs, double now) {
      double left = Long.parseLong(leftMs), end = sent + left - left / 100 - Math.min(left / 100, 20); // rule 3
      if (end <= until || end <= now) return false; // rules 4 and 5
      until = end;
      inDoubt = false;
      due = Math.max(sent, end - ttl) + ttl / 3; // rule 7
      return true;
    }

    private void expire() {
      if (state.equals("held") && clock.getAsDouble() >= until) lose(this, "expired"); // rule 6
    }

    /** The fencing token, greater than that of every earlier holder. */
    public long token() { return token; }

    /** Completes with the reason of a loss. */
    public CompletableFuture<String> lost() { return lost.copy(); }

    /** Completes when no renewal was confirmed until a quarter of the TTL before the end. */
    public CompletableFuture<Void> doubt() { return doubt.copy(); }

    /** Throws LostException if the lock may be another's by now. It compares clocks and does not block. */
    public void check() {
      expire();
      if (!state.equals("held")) throw lostBy("has ended", reason.isEmpty() ? "released" : reason);
    }

    private LostException lostBy(String how, String why) {
      return new LostException("lock " + name + ": the hold " + how + ": " + why, why);
    }

    /** Gives the lock up, in a third of the TTL, 5 s at most: "released", "lost" or "unknown". */
    public String release() {
      if (count.decrementAndGet() > 0 || state.equals("released")) return "released"; // rule 13
      nested.values().remove(this);
      expire();
      return reason.isEmpty() ? end(this) : "lost";
    }

    /** Releases the lock, and throws LostException if the hold had ended before. */
    @Override
    public void close() {
      if (release().equals("lost")) throw lostBy("ended too early", reason.isEmpty() ? "gone" : reason);
    }
  }

  /** Elapsed milliseconds, with those of suspends (rule 8): System.nanoTime leaves them out, so /proc/uptime is read
   * once the wall clock has drifted from it, by a suspend or a step. */
  static final class BootClock {
    static Path uptime = Path.of("/proc/uptime");
    static LongSupplier wall = System::currentTimeMillis;
    private static final double base = uptimeMs() - System.nanoTime() / 1e6;
    private static double drift = wall.getAsLong() - System.nanoTime() / 1e6, asleep;
    private static double uptimeMs() {
      try {
        return Double.parseDouble(Files.readString(uptime).split(" ")[0]) * 1000;
      } catch (IOException e) {
        return Double.NaN; // no Linux: the system's clock counts suspends
      }
    }
    static synchronized double now() {
      double now = System.nanoTime() / 1e6, apart = wall.getAsLong() - now;
      if (Math.abs(apart - drift) > 50) {
        double slept = uptimeMs() - now - base - 20;
        if (slept > asleep) asleep = slept;
        if (!Double.isNaN(slept)) drift = apart; // else it is read again
      }
      return now + asleep;
    }
  }
}
