package io.github.holdfastgo;

import java.io.IOException;
import java.net.*;
import java.net.http.*;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.*;
import javax.net.ssl.SSLContext;

/**
 * Locks of a Holdfast lock server. A Locks is a client of servers over one store, and safe for concurrent use.
 * Numbers in comments are those of the rules in clients/README.md.
 */
public final class Locks {
  /** The base of the exceptions of this class; code is the server's, or the reason of a loss. */
  public static class HoldfastException extends RuntimeException {
    private static final long serialVersionUID = 1;
    public final String code;
    HoldfastException(String text, String code) { super(text); this.code = code; }
  }
  /** Others hold the lock. */
  public static final class HeldException extends HoldfastException { HeldException(String t) { super(t, "held"); } }
  /** The hold has ended; code is expired, gone, max_hold or released. */
  public static final class LostException extends HoldfastException { LostException(String t, String c) { super(t, c); } }
  /** The servers refuse the request, or belong to different stores: the program has to be changed. */
  public static final class RefusedException extends HoldfastException { RefusedException(String t, String c) { super(t, c); } }
  /** No server has answered for a TTL. */
  public static final class UnavailableException extends HoldfastException { UnavailableException(String t) { super(t, ""); } }

  /** An answer: its status, whether a lock server signed it, its lines, and when it was asked for. */
  static final class Answer {
    final int status; final boolean signed; final List<Map<String, String>> parts = new ArrayList<>();
    double sent;
    Answer(int status, boolean signed, String text) {
      this.status = status;
      this.signed = signed;
      for (String part : text.split("\n\n")) { // an entry of a batch each
        Map<String, String> fields = new HashMap<>();
        for (String line : part.split("\n")) if (line.contains("=")) fields.put(line.substring(0, line.indexOf('=')), line.substring(line.indexOf('=') + 1));
        parts.add(fields);
      }
    }
    String get(String key) { return parts.get(parts.size() - 1).getOrDefault(key, ""); }
  }
  interface Sender { Answer send(int at, String path, String form, double limit) throws IOException, InterruptedException; }

  private final List<URI> urls = new ArrayList<>();
  private final Supplier<String> token;
  private final HttpClient http;
  private final double ttl;
  private final String client, host;
  private final AtomicLong tries = new AtomicLong();
  private final ThreadLocal<Map<String, Hold>> nested = ThreadLocal.withInitial(HashMap::new);
  final List<Hold> holds = new ArrayList<>(); // guarded by this, as are at, group and the states of holds
  private int at;
  private String group = "";
  boolean running;
  DoubleSupplier clock = BootClock::now;
  Sender sender = this::sendHttp;
  DoubleConsumer sleeper = ms -> { try { Thread.sleep((long) ms); } catch (InterruptedException e) { Thread.currentThread().interrupt(); } };

  public Locks(String... servers) { this(List.of(servers), null, Duration.ofSeconds(30), null); }

  /** token: a bearer token, or null; ttl: the lock of a dead process is free after it; tls: null verifies. */
  public Locks(List<String> servers, Supplier<String> token, Duration ttl, SSLContext tls) {
    for (String server : servers) {
      URI url = URI.create(server);
      if (!Set.of("http", "https").contains(String.valueOf(url.getScheme())) || url.getHost() == null || url.getUserInfo() != null
          || url.getQuery() != null || !url.getPath().replace("/", "").isEmpty()) {
        throw new IllegalArgumentException("server: an address is http://HOST:PORT or https://HOST:PORT");
      }
      if (token != null && url.getScheme().equals("http") && !Set.of("127.0.0.1", "[::1]", "localhost").contains(url.getHost())) {
        throw new IllegalArgumentException("server: a token travels by https:// only"); // rule 14
      }
      urls.add(URI.create(url.getScheme() + "://" + url.getHost() + ":" + (url.getPort() < 0 ? 7420 : url.getPort())));
    }
    if (urls.isEmpty()) throw new IllegalArgumentException("servers: none is given");
    this.token = token;
    this.ttl = ttl.toMillis();
    HttpClient.Builder builder = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1);
    http = (tls == null ? builder : builder.sslContext(tls)).build();
    byte[] random = new byte[24];
    new SecureRandom().nextBytes(random);
    client = Base64.getUrlEncoder().withoutPadding().encodeToString(random); // rule 1; a JVM does not fork (rule 2)
    host = System.getenv().getOrDefault("HOSTNAME", "");
  }

  /** Waits for the lock. */
  public Hold lock(String name) throws InterruptedException { return lock(name, null, Map.of()); }

  /** Waits for the lock: wait null for ever, zero not at all. fields: ttl_ms, kind, permits, of, note, max_hold_ms. */
  public Hold lock(String name, Duration wait, Map<String, String> fields) throws InterruptedException {
    String key = name + "\n" + fields.getOrDefault("kind", "mutex");
    Hold hold = nested.get().get(key);
    synchronized (this) {
      if (hold != null && !hold.state.equals("released")) {
        hold.check();
        hold.count++; // rule 13
        return hold;
      }
    }
    Hold taken = acquire(name, wait, fields);
    Map<String, Hold> mine = nested.get();
    mine.put(key, taken);
    taken.leave = () -> mine.remove(key, taken);
    return taken;
  }

  private Hold acquire(String name, Duration wait, Map<String, String> fields) throws InterruptedException {
    Hold h = new Hold(name, fields);
    double heard = clock.getAsDouble(), end = heard + (wait == null ? 1e15 : wait.toMillis());
    try {
      for (;;) {
        double most = Math.max(0, Math.min(Math.min(10000, Math.max(1000, h.ttl / 3)), end - clock.getAsDouble()));
        String way = wait != null && wait.isZero() ? "&try=true" : "&wait_ms=" + (long) most;
        Answer a = ask(List.of(h), "/v1/acquire", h.form() + way, most + 5000);
        double now = clock.getAsDouble();
        int status = a == null ? 0 : a.status;
        String code = a == null ? "" : a.get("code");
        if (Thread.interrupted()) throw new InterruptedException();
        if (a != null) heard = now;
        if (status == 200 && a.get("state").equals("held")) {
          if (begin(h, a, now)) return h;
          end(h); // rule 5
          h = new Hold(name, fields);
        } else if (status == 410 || code.equals("id_in_use")) {
          h = new Hold(name, fields);
        } else if (!Set.of(0, 202, 425, 429).contains(status)) {
          h.asked = h.moved; // without a missed answer, the server has no place of this id
          String text = "lock " + name + ": " + (a.get("detail").isEmpty() ? code : a.get("detail"));
          throw status == 409 && code.equals("held") ? new HeldException(text) : new RefusedException(text, code);
        }
        if (now >= end && a != null) throw new HeldException("lock " + name + ": the wait is over");
        if (now >= end || now - heard >= h.ttl) throw new UnavailableException("lock " + name + ": no server answers");
        if (!Set.of(200, 202, 410).contains(status)) sleeper.accept(jitter(Math.min(1000, h.ttl / 20)));
      }
    } finally {
      if (h.state.equals("asking") && h.asked) end(h); // rule 10
    }
  }

  private String bearer() {
    String text = token.get().strip(); // a file ends with a new line
    if (!text.matches("[!-~]+")) throw new RefusedException("token: it has characters that a header cannot have", "token");
    return "Bearer " + text;
  }

  private Answer sendHttp(int at, String path, String form, double limit) throws IOException, InterruptedException {
    HttpRequest.Builder request = HttpRequest.newBuilder(urls.get(at).resolve(path)).POST(HttpRequest.BodyPublishers.ofString(form))
        .header("Content-Type", "application/x-www-form-urlencoded").header("Accept", "text/plain");
    if (token != null) request.header("Authorization", bearer());
    CompletableFuture<HttpResponse<String>> reply = http.sendAsync(request.build(), HttpResponse.BodyHandlers.ofString());
    try {
      HttpResponse<String> r = reply.get((long) limit, TimeUnit.MILLISECONDS);
      if (r.headers().firstValueAsLong("Content-Length").isEmpty()) throw new IOException("an answer without a length may be truncated");
      return new Answer(r.statusCode(), r.headers().firstValue("Holdfast").orElse("").equals("1"), r.body());
    } catch (ExecutionException | TimeoutException e) {
      throw new IOException(e);
    } finally {
      reply.cancel(true);
    }
  }

  /** Sends a request; null if it is the next server's turn. */
  private Answer ask(List<Hold> about, String path, String form, double limit) throws InterruptedException {
    int at;
    synchronized (this) { at = this.at; }
    double sent = clock.getAsDouble();
    Answer a = null;
    for (Hold h : about) h.asked = true;
    try {
      a = sender.send(at, path, form, limit);
      a.sent = sent;
    } catch (IOException e) { // the next server
    }
    boolean ok = a != null && a.signed && (a.status >= 300 || !a.get("group").isEmpty() && !a.get("server").isEmpty()); // rule 11
    synchronized (this) {
      for (Hold h : about) {
        h.servers.add(ok ? a.get("server") : "");
        h.moved |= !ok || h.servers.size() > 1; // rule 9
      }
      if (ok && group.isEmpty()) group = a.get("group");
      if (ok && !a.get("group").isEmpty() && !a.get("group").equals(group)) { // rule 12
        throw new RefusedException("server " + urls.get(at) + ": its store is not that of the server before", "group");
      }
      boolean unserved = ok && a.parts.stream().anyMatch(e -> e.getOrDefault("status", "").startsWith("5") || "unknown".equals(e.get("result")));
      if ((!ok || a.status >= 500 || unserved || a.get("draining").equals("true")) && this.at == at) this.at = (at + 1) % urls.size();
    }
    return ok && a.status < 500 ? a : null;
  }

  private synchronized boolean begin(Hold h, Answer a, double now) {
    double until = a.sent + trusted(a.get("left_ms"));
    if (now >= until || !h.state.equals("asking")) return false;
    h.state = "held";
    h.token = Long.parseLong(a.get("token"));
    h.granted = now;
    h.renewed(until, a.sent);
    holds.add(h);
    if (!running) {
      running = true;
      Thread loop = new Thread(() -> { while (step(60000)) { } }, "holdfast");
      loop.setDaemon(true);
      loop.start();
    }
    notifyAll();
    return true;
  }

  /** Renews what is due, and tells doubts and losses; false if there are no holds. */
  boolean step(double most) {
    List<Hold> over = new ArrayList<>(), doubts = new ArrayList<>(), due = new ArrayList<>();
    double limit = 5000;
    synchronized (this) {
      double now = clock.getAsDouble(), next = now + most;
      boolean soon = false; // what is due soon travels with it
      for (Hold h : holds) soon |= h.due <= now;
      for (Hold h : holds) {
        limit = Math.min(limit, Math.max(50, h.ttl / 6));
        if (now >= h.until) over.add(h);
        else if (!h.inDoubt && now >= h.until - h.ttl / 4) doubts.add(h);
        if (soon && h.due <= now + h.ttl / 20 && now < h.until && due.size() < 100) due.add(h); // rule 15
        next = Math.min(next, Math.min(h.due, h.inDoubt ? h.until : h.until - h.ttl / 4));
      }
      for (Hold h : doubts) h.inDoubt = true; // rule 17
      for (Hold h : due) h.due = Double.MAX_VALUE; // until renew has an answer
      if (over.isEmpty() && doubts.isEmpty() && due.isEmpty()) {
        if (holds.isEmpty()) return running = false;
        try { wait(Math.max(1, (long) Math.ceil(next - now))); } catch (InterruptedException e) { return running = false; }
      }
    }
    for (Hold h : over) lose(h, "expired");
    for (Hold h : doubts) h.doubt.complete(null);
    double tries = limit;
    if (!due.isEmpty()) background(() -> renew(due, tries));
    return true;
  }

  private static void background(Runnable work) {
    Thread thread = new Thread(work, "holdfast request");
    thread.setDaemon(true);
    thread.start();
  }

  void renew(List<Hold> due, double limit) {
    try {
      StringJoiner form = new StringJoiner("&");
      List<Hold> known = new ArrayList<>();
      for (Hold h : due) if (!h.resumes) known.add(h);
      for (Hold h : known) form.add("id=" + h.id);
      Answer a = known.isEmpty() ? null : ask(known, "/v1/renew", form.toString(), limit);
      for (Hold h : due) {
        int i = known.indexOf(h);
        if (i >= 0 && (a == null || a.status != 200)) continue;
        Map<String, String> entry = i < 0 ? Map.of("code", "unknown_hold") : i < a.parts.size() ? a.parts.get(i) : Map.of();
        double sent = i < 0 ? 0 : a.sent;
        if ("unknown_hold".equals(entry.get("code")) || "waiting".equals(entry.get("state"))) { // rule 18
          Answer again = ask(List.of(h), "/v1/acquire", h.form() + "&resume=" + h.token + "&wait_ms=0", limit);
          h.resumes = again == null || !"held".equals(again.parts.get(0).get("state"));
          if (again == null) continue;
          entry = again.parts.get(0);
          sent = again.sent;
        }
        answered(h, sent, entry);
      }
    } catch (RefusedException | InterruptedException e) { // the claims go on until their ends
    } finally {
      synchronized (this) {
        double now = clock.getAsDouble();
        for (Hold h : due) if (h.due == Double.MAX_VALUE || h.due <= now) h.due = now + jitter(h.ttl / 20); // rule 7
        notifyAll();
      }
    }
  }

  /** Believes an answer to a renewal, or does not. */
  private void answered(Hold h, double sent, Map<String, String> entry) throws InterruptedException {
    boolean held = "held".equals(entry.get("state")), ours = held && entry.get("token").equals(Long.toString(h.token));
    synchronized (this) {
      double now = clock.getAsDouble();
      if (ours && h.state.equals("held") && now < h.until) { // rules 4 to 6
        double until = sent + trusted(entry.get("left_ms"));
        if (h.until < until && now < until) h.renewed(until, sent);
        return;
      }
    }
    if (held && !h.state.equals("released") || Set.of("lost", "released").contains(entry.getOrDefault("code", ""))) {
      lose(h, entry.getOrDefault("reason", ours ? "expired" : "gone"));
      if (held) end(h); // rule 6: the loss is final
    }
  }

  private void lose(Hold h, String reason) {
    synchronized (this) {
      if (!h.state.equals("held")) return;
      h.state = "lost";
      h.reason = reason;
      holds.remove(h);
    }
    background(() -> { try { end(h); } catch (InterruptedException e) { } });
    h.lost.complete(reason);
  }

  /** Releases an id, wherever it stands (rules 9, 10 and 16). */
  private String end(Hold h) throws InterruptedException {
    synchronized (this) {
      holds.remove(h);
      if (!h.state.equals("lost")) h.state = "released";
    }
    boolean interrupted = Thread.interrupted(); // the release goes out all the same
    double limit = Math.min(5000, h.ttl / 3), end = clock.getAsDouble() + limit;
    try {
      for (double now = clock.getAsDouble(); now < end; now = clock.getAsDouble()) {
        String form = "id=" + h.id + "&name=" + encode(h.name) + "&moved=" + h.moved;
        Answer a = ask(List.of(h), "/v1/release", form, Math.min(Math.max(50, limit / 2), end - now));
        String result = a == null ? "" : a.parts.get(0).getOrDefault("result", "");
        if (result.equals("released") || result.equals("gone") && h.moved) return "released";
        if (result.equals("gone")) {
          h.reason = h.reason.isEmpty() ? "gone" : h.reason;
          return "lost";
        }
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
  static double trusted(String leftMs) { // rule 3
    double left = Long.parseLong(leftMs);
    return left - left / 100 - Math.min(left / 100, 20);
  }

  /** A lock that is held. close releases it. */
  public final class Hold implements AutoCloseable {
    public final String name;
    final String id = client + "." + tries.incrementAndGet(); // rule 1
    final double ttl;
    final Set<String> servers = new HashSet<>();
    volatile String state = "asking", reason = "";
    volatile double until;
    volatile boolean asked, moved, resumes, inDoubt;
    double due, granted;
    int count = 1;
    Runnable leave = () -> { };
    private long token;
    private final Map<String, String> fields;
    private final CompletableFuture<String> lost = new CompletableFuture<>();
    private final CompletableFuture<Void> doubt = new CompletableFuture<>();

    private Hold(String name, Map<String, String> fields) {
      this.name = name;
      this.fields = fields;
      ttl = fields.containsKey("ttl_ms") ? Long.parseLong(fields.get("ttl_ms")) : Locks.this.ttl;
    }

    private String form() {
      StringBuilder form = new StringBuilder("id=" + id + "&name=" + encode(name) + "&host=" + encode(host) + "&pid=" + ProcessHandle.current().pid());
      if (!fields.containsKey("ttl_ms")) form.append("&ttl_ms=").append((long) ttl);
      fields.forEach((k, v) -> form.append('&').append(k).append('=').append(k.equals("max_hold_ms") && granted > 0
          ? "" + Math.max(1, (long) (granted + Long.parseLong(v) - clock.getAsDouble())) : encode(v)));
      return form.toString();
    }

    private void renewed(double until, double sent) {
      this.until = until;
      inDoubt = false;
      due = Math.max(sent, until - ttl) + ttl / 3; // rule 7
    }

    /** The fencing token, greater than that of every earlier holder. */
    public long token() { return token; }

    /** Completes with the reason of a loss. */
    public CompletableFuture<String> lost() { return lost.copy(); }

    /** Completes when no renewal was confirmed until a quarter of the TTL before the end. */
    public CompletableFuture<Void> doubt() { return doubt.copy(); }

    /** Throws LostException if the lock may be another's by now. It compares clocks and does not block. */
    public void check() {
      if (state.equals("held") && clock.getAsDouble() >= until) lose(this, "expired"); // rule 6
      if (!state.equals("held")) {
        String why = reason.isEmpty() ? "released" : reason;
        throw new LostException("lock " + name + ": the hold has ended: " + why, why);
      }
    }

    /** Gives the lock up, in a third of the TTL, 5 s at most: "released", "lost" or "unknown". */
    public String release() {
      synchronized (Locks.this) {
        if (--count > 0 || state.equals("released")) return "released"; // rule 13
      }
      leave.run();
      if (state.equals("held") && clock.getAsDouble() >= until) lose(this, "expired");
      try {
        return reason.isEmpty() ? end(this) : "lost";
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        return "unknown";
      }
    }

    /** Releases the lock, and throws LostException if the hold had ended before. */
    @Override
    public void close() {
      if (release().equals("lost")) throw new LostException("lock " + name + ": the hold ended too early: " + reason, reason);
    }
  }

  /** Elapsed milliseconds, with those of suspends (rule 8): System.nanoTime leaves them out, so /proc/uptime is read
   * once the wall clock has drifted from it, by a suspend or a step. */
  static final class BootClock {
    static Path uptime = Path.of("/proc/uptime");
    static LongSupplier wall = System::currentTimeMillis;
    private static final double base = uptimeMs() - monotonic();
    private static double drift = wall.getAsLong() - monotonic(), asleep;

    private static double monotonic() { return System.nanoTime() / 1e6; }
    private static double uptimeMs() {
      try {
        return Double.parseDouble(Files.readString(uptime).split(" ")[0]) * 1000;
      } catch (IOException e) {
        return Double.NaN; // no Linux: the system's clock counts suspends
      }
    }
    static synchronized double now() {
      double now = monotonic(), apart = wall.getAsLong() - now;
      if (Math.abs(apart - drift) > 50) {
        drift = apart;
        double slept = uptimeMs() - now - base - 20;
        if (slept > asleep) asleep = slept;
      }
      return now + asleep;
    }
  }
}
