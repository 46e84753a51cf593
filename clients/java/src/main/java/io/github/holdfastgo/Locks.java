package io.github.holdfastgo;

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

/** A client of lock servers over one store. Comments number the rules of clients/README.md. */
public final class Locks {
  /** The base of these exceptions. code: the server's, or expired, gone, max_hold, released. */
  public static class HoldfastException extends RuntimeException {
    public final String code;
    HoldfastException(String text, String code) { super(text); this.code = code; }
  }
  public static class HeldException extends HoldfastException { // others hold the lock
    HeldException(String text) { super(text, "held"); }
  }
  public static class LostException extends HoldfastException { // the hold has ended
    LostException(String text, String code) { super(text, code); }
  }
  public static class RefusedException extends HoldfastException { // the program has to change
    RefusedException(String text, String code) { super(text, code); }
  }
  public static class UnavailableException extends HoldfastException { // no server answers
    UnavailableException(String text) { super(text, ""); }
  }
  /** An answer: its lines key=value, with those of a batch of one. Status 0 is none. */
  static final class Answer {
    private final Map<String, String> fields = new HashMap<>();
    final int status;
    final long token, left;
    double sent; // when it was asked for
    Answer(int status, boolean signed, String text) {
      if (signed) // rule 11: else a proxy answered
        text.lines().map(l -> l.split("=", 2)).forEach(f -> fields.put(f[0], f[f.length - 1]));
      this.status = Integer.parseInt(get("status", "" + status));
      token = Long.parseLong(get("token", "0"));
      left = Long.parseLong(get("left_ms", "0"));
    }
    String get(String key, String otherwise) { return fields.getOrDefault(key, otherwise); }
    boolean says(String key, String value) { return value.equals(fields.get(key)); }
  }
  interface Sender { Answer send(int at, String path, String form, double ms) throws Exception; }
  private static final Executor POOL = new ForkJoinPool(1000); // of daemons
  private final List<URI> urls = new ArrayList<>();
  private final Supplier<String> token;
  private final double lease;
  private final HttpClient http;
  private final String client = ("" + UUID.randomUUID() + UUID.randomUUID()).replace("-", "");
  private final AtomicLong tries = new AtomicLong();
  private final Map<List<Object>, Hold> nested = new ConcurrentHashMap<>(); // by thread, name, kind
  private volatile int at;
  private String group = "";
  DoubleSupplier clock = Locks::bootTime;
  DoubleConsumer sleeper = ms -> LockSupport.parkNanos((long) (ms * 1e6));
  DoubleFunction<Executor> after =
      ms -> CompletableFuture.delayedExecutor((long) ms + 1, TimeUnit.MILLISECONDS, POOL);
  Sender sender = this::sendHttp;

  public Locks(String... servers) { this(List.of(servers), null, Duration.ofSeconds(30), null); }
  /** token: a bearer token, or null; ttl: after it, the lock of a dead process is free. */
  public Locks(List<String> servers, Supplier<String> token, Duration ttl, SSLContext tls) {
    for (String s : servers.isEmpty() ? List.of("") : servers) {
      URI url = URI.create(s.matches("https?://[^/?#@]+/*") ? s : "");
      String host = url.getHost();
      if (host == null) throw new IllegalArgumentException("server: want http[s]://HOST:PORT");
      if (token != null && s.startsWith("http:") && !host.matches("127.0.0.1|\\[::1]|localhost"))
        throw new IllegalArgumentException("server: a token travels by https:// only"); // rule 14
      urls.add(url.getPort() < 0 ? url.resolve("//" + host + ":7420") : url);
    }
    this.token = token;
    lease = ttl.toMillis();
    HttpClient.Builder builder = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1);
    http = (tls == null ? builder : builder.sslContext(tls)).build();
  }
  public Hold lock(String name) throws InterruptedException { return lock(name, null, Map.of()); }
  /** Waits for the lock: wait null for ever, zero not at all; fields: those of the request. */
  public Hold lock(String name, Duration wait, Map<String, ?> fields) throws InterruptedException {
    Object kind = Objects.requireNonNullElse(fields.get("kind"), "mutex");
    List<Object> key = List.of(Thread.currentThread(), name, kind);
    Hold hold = nested.get(key);
    if (hold != null && !hold.state.equals("released")) hold.check();
    else nested.put(key, hold = acquire(new Hold(name, fields), wait));
    hold.count.incrementAndGet(); // rule 13
    return hold;
  }
  private Hold acquire(Hold h, Duration wait) throws InterruptedException {
    double heard = clock.getAsDouble(), end = heard + (wait == null ? 1e15 : wait.toMillis());
    try {
      for (int missed = 0; ; ) {
        double most = Math.min(10000, Math.max(1000, h.ttl / 3));
        long rest = (long) Math.max(0, Math.min(most, end - clock.getAsDouble()));
        var way = Duration.ZERO.equals(wait) ? Map.of("try", true) : Map.of("wait_ms", rest);
        Answer a = ask(h, "/v1/acquire", h.form(way), rest + 5000);
        double now = clock.getAsDouble();
        if (Thread.interrupted()) throw new InterruptedException();
        missed = a.status == 0 ? missed + 1 : 0;
        if (missed == 0) heard = now;
        if (a.status == 200 && h.claim(a, now)) return h;
        if (a.status == 200) end(h).join(); // rule 5
        String code = a.get("code", ""), text = "lock " + h.name + ": ";
        if (a.status == 200 || a.status == 410 || code.equals("id_in_use")) {
          h = new Hold(h.name, h.fields);
        } else if (!Set.of(0, 202, 425, 429).contains(a.status)) {
          if (!h.moved) h.state = "refused"; // no server has a place of it
          text += a.get("detail", code);
          throw code.equals("held") ? new HeldException(text) : new RefusedException(text, code);
        }
        boolean over = now >= end || now - heard >= h.ttl;
        if (over && missed == 0) throw new HeldException(text + "the wait is over");
        if (over && missed >= urls.size()) throw new UnavailableException(text + "no answer");
        if (!Set.of(200, 202, 410).contains(a.status)) pause(Math.min(1000, h.ttl / 20));
      }
    } finally {
      if (h.state.equals("asking")) end(h).join(); // rule 10
    }
  }
  private Answer sendHttp(int at, String path, String form, double ms) throws Exception {
    HttpRequest.Builder request = HttpRequest.newBuilder(urls.get(at).resolve(path))
        .headers("Content-Type", "application/x-www-form-urlencoded", "Accept", "text/plain")
        .POST(HttpRequest.BodyPublishers.ofString(form));
    String bearer = token == null ? "none" : token.get().strip(); // a file ends with a new line
    if (!bearer.matches("[!-~]+"))
      throw new RefusedException("token: it has characters that a header cannot have", "token");
    if (token != null) request.header("Authorization", "Bearer " + bearer);
    var reply = http.sendAsync(request.build(), HttpResponse.BodyHandlers.ofString());
    try {
      HttpResponse<String> r = reply.get((long) ms, TimeUnit.MILLISECONDS);
      if (r.headers().firstValue("Content-Length").isEmpty()) throw new IOException("truncated?");
      return new Answer(r.statusCode(), r.headers().firstValue("Holdfast").isPresent(), r.body());
    } finally {
      reply.cancel(true);
    }
  }
  /** Asks a server about a hold. Status 0: it is the next server's turn. */
  private Answer ask(Hold h, String path, Map<String, ?> fields, double ms) {
    StringJoiner form = new StringJoiner("&");
    fields.forEach((k, v) -> form.add(k + "=" + URLEncoder.encode("" + v, StandardCharsets.UTF_8)));
    int at = this.at;
    double sent = clock.getAsDouble();
    Answer a = new Answer(0, false, "");
    try {
      a = sender.send(at, path, form.toString(), ms);
      a.sent = sent;
    } catch (Exception e) { // none, or one that makes no sense
      if (e instanceof RefusedException) throw (RefusedException) e;
      if (e instanceof InterruptedException) Thread.currentThread().interrupt();
    }
    String server = a.get("server", ""), of = a.get("group", "");
    boolean away = server.isEmpty() || a.status >= 500 || a.says("result", "unknown"); // rule 11
    synchronized (this) {
      h.moved |= server.isEmpty() || h.servers.add(server) && h.servers.size() > 1; // rule 9
      if (group.isEmpty()) group = of;
      if (!of.isEmpty() && !of.equals(group)) // rule 12
        throw new RefusedException("server " + urls.get(at) + ": it has another store", "group");
      if ((away || a.says("draining", "true")) && this.at == at) this.at = (at + 1) % urls.size();
    }
    return away ? new Answer(0, false, "") : a;
  }
  void renew(Hold h) {
    if (!h.isHeld()) return;
    double limit = Math.min(5000, Math.max(50, h.ttl / 6)), left = h.until - clock.getAsDouble();
    after.apply(left - h.ttl / 4).execute(h::isHeld);
    after.apply(left).execute(h::isHeld);
    Answer a = new Answer(0, false, "");
    try {
      if (!h.resumes) a = ask(h, "/v1/renew", Map.of("id", h.id), limit);
      if (h.resumes || a.says("code", "unknown_hold") || a.says("state", "waiting")) { // rule 18
        a = ask(h, "/v1/acquire", h.form(Map.of("resume", h.token, "wait_ms", 0)), limit);
        h.resumes = !a.says("state", "held");
      }
    } catch (RefusedException e) { // another store: the claim goes on until its end
    }
    boolean held = a.says("state", "held");
    if (held && !h.isHeld() && !h.state.equals("released")) end(h); // rule 6: the loss is final
    else if (held && a.token != h.token || a.status == 410) h.lose(a.get("reason", "gone"));
    else if (!held || !h.claim(a, clock.getAsDouble())) // rule 7
      after.apply(jitter(h.ttl / 20)).execute(() -> renew(h));
  }

  /** Releases an id, wherever it stands (rules 9, 10 and 16), even if the caller is interrupted. */
  private CompletableFuture<String> end(Hold h) {
    double limit = Math.min(5000, h.ttl / 3), end = clock.getAsDouble() + limit;
    return CompletableFuture.supplyAsync(() -> {
      for (double now; (now = clock.getAsDouble()) < end; pause(h.ttl / 20)) {
        Map<String, ?> form = new TreeMap<>(Map.of("id", h.id, "name", h.name, "moved", h.moved));
        Answer a = ask(h, "/v1/release", form, Math.min(Math.max(50, limit / 2), end - now));
        if (a.says("result", "gone")) return h.moved ? "released" : "lost";
        if (a.says("result", "released")) return "released";
      }
      return "unknown";
    }, POOL).exceptionally(e -> "unknown");
  }
  private void pause(double ms) { sleeper.accept(jitter(ms)); }
  private static double jitter(double ms) { return ms * (0.5 + Math.random()); }
  static Path uptime = Path.of("/proc/uptime"); // elsewhere the system's clock counts suspends
  static LongSupplier wall = System::currentTimeMillis;
  private static double base = Double.NaN, drift, asleep;
  /** Elapsed milliseconds, with those of suspends (rule 8): System.nanoTime leaves them out, so
   * /proc/uptime is read once the wall clock has drifted from it, by a suspend or a step. */
  static synchronized double bootTime() {
    double now = System.nanoTime() / 1e6, apart = wall.getAsLong() - now;
    if (Math.abs(apart - drift) > 50 && Files.exists(uptime)) {
      try {
        double ahead = Double.parseDouble(Files.readString(uptime).split(" ")[0]) * 1000 - now;
        if (Double.isNaN(base)) base = ahead;
        asleep = Math.max(asleep, ahead - base - 20);
        drift = apart;
      } catch (IOException e) { // it is read again
      }
    }
    return now + asleep;
  }

  /** A lock that is held. */
  public final class Hold implements AutoCloseable {
    public final String name;
    final String id = client + "." + tries.incrementAndGet(); // rule 1
    private final double ttl;
    private final Map<String, ?> fields;
    private final Set<String> servers = new HashSet<>();
    private final CompletableFuture<String> lost = new CompletableFuture<>();
    private final CompletableFuture<Void> doubt = new CompletableFuture<>();
    private final AtomicInteger count = new AtomicInteger();
    private volatile String state = "asking"; // then held, and then how it ended
    private volatile boolean moved, resumes;
    private volatile long token;
    volatile double until, granted;
    private Hold(String name, Map<String, ?> fields) {
      this.name = name;
      this.fields = fields;
      ttl = Double.parseDouble("" + Objects.requireNonNullElse(fields.get("ttl_ms"), lease));
    }
    private Map<String, ?> form(Map<String, ?> more) {
      Map<String, Object> all = new TreeMap<>(fields);
      all.putAll(Map.of("id", id, "name", name, "ttl_ms", (long) ttl));
      all.put("host", System.getenv().getOrDefault("HOSTNAME", ""));
      all.put("pid", ProcessHandle.current().pid());
      all.putAll(more);
      long since = granted > 0 ? (long) (clock.getAsDouble() - granted) : 0;
      all.computeIfPresent("max_hold_ms", (k, ms) -> Long.parseLong("" + ms) - since);
      return all;
    }
    private synchronized boolean claim(Answer a, double now) {
      double left = a.left, end = a.sent + left - left / 100 - Math.min(left / 100, 20); // rule 3
      if (end <= Math.max(until, now)) return false; // rules 4 and 5
      until = end;
      token = a.token;
      if (granted == 0) granted = now;
      if (state.equals("asking")) state = "held";
      after.apply(Math.max(a.sent, end - ttl) + ttl / 3 - now).execute(() -> renew(this)); // rule 7
      return true;
    }
    private synchronized void lose(String why) {
      if (!state.equals("held")) return;
      state = why;
      end(this);
      lost.completeAsync(() -> why, POOL);
    }
    private boolean isHeld() {
      if (!state.equals("held")) return false;
      double left = until - clock.getAsDouble();
      if (left <= 0) lose("expired"); // rule 6
      if (left <= ttl / 4 && !doubt.isDone()) doubt.completeAsync(() -> null, POOL); // rule 17
      return left > 0;
    }
    /** The fencing token, greater than that of every earlier holder. */
    public long token() { return token; }
    /** Completes with the reason of a loss. */
    public CompletableFuture<String> lost() { return lost.copy(); }
    /** Completes when no renewal was confirmed until a quarter of the TTL before the end. */
    public CompletableFuture<Void> doubt() { return doubt.copy(); }
    /** Throws LostException if the lock may be another's by now. It does not block. */
    public void check() {
      if (!isHeld()) throw new LostException("lock " + name + ": the hold ended: " + state, state);
    }
    /** Gives the lock up, in a third of the TTL, 5 s at most: "released", "lost" or "unknown". */
    public String release() {
      if (count.decrementAndGet() > 0) return "released"; // rule 13
      nested.values().remove(this);
      synchronized (this) {
        if (!isHeld()) return state.equals("released") ? "released" : "lost";
        state = "released";
      }
      String result = end(this).join();
      if (result.equals("lost")) state = "gone";
      return result;
    }
    /** Releases the lock, and throws LostException if the hold had ended before. */
    @Override public void close() { if (release().equals("lost")) check(); }
  }
}
