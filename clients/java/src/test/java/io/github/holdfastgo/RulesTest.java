package io.github.holdfastgo;

import static org.junit.jupiter.api.Assertions.*;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The rules of clients/README.md, by number, with a clock and answers that the tests set. */
class RulesTest {
  static final String SIGNED = "\nserver=a.1\ngroup=00000001\n", GRANT = "state=held\ntoken=7\nleft_ms=10000";

  /** What a server says: after a delay, with a status; 0 is no answer. */
  static final class Reply {
    final double delay; final int status; final String text; final boolean signed;
    Reply(double delay, int status, String text, boolean signed) { this.delay = delay; this.status = status; this.text = text; this.signed = signed; }
  }
  static Reply reply(double delay, int status, String text) { return new Reply(delay, status, text + SIGNED, true); }

  /** A client whose requests answer() answers, and whose clock only answers and pauses move. */
  static final class World {
    final Locks locks = new Locks(List.of("http://127.0.0.1:1", "http://127.0.0.1:2"), null, Duration.ofSeconds(10), null);
    final List<String> asked = Collections.synchronizedList(new ArrayList<>());
    volatile double now = 1000000, due; // the time of the renewal that is planned
    World(Function<String, Reply> answer) {
      locks.clock = () -> now;
      locks.sleeper = ms -> now += ms;
      locks.after = ms -> task -> due = now + ms; // the tests call what it calls
      locks.sender = (at, path, form, limit) -> {
        asked.add(at + " " + path.substring(4) + " " + form);
        Reply r = answer.apply(path.substring(4));
        if (r == null) r = normal(path.substring(4), form);
        now += r.delay;
        if (r.status == 0) throw new IOException("no answer");
        return new Locks.Answer(r.status, r.signed, r.text);
      };
    }
    static Reply normal(String path, String form) {
      if (path.equals("acquire")) return reply(100, 200, GRANT);
      if (path.equals("release")) return reply(0, 200, "result=released");
      return reply(100, 200, String.join("\n\n", Collections.nCopies(form.split("&").length, GRANT)));
    }
    String paths() {
      StringJoiner all = new StringJoiner(" ");
      synchronized (asked) { for (String a : asked) all.add(a.split(" ")[1]); }
      return all.toString();
    }
    String id(int i) { return asked.get(i).replaceAll(".*?id=([^&]*).*", "$1"); }
    void renew(Locks.Hold h) { locks.renew(h); }
  }

  static World but(String path, Reply... replies) {
    Deque<Reply> left = new ArrayDeque<>(List.of(replies));
    return new World(p -> p.equals(path) ? left.poll() : null);
  }

  @Test void rule_01_idsAreFresh() throws Exception {
    World w = but("");
    String a = w.locks.lock("a").id, b = w.locks.lock("b").id, c = but("").locks.lock("a").id;
    assertEquals(3, Set.of(a, b, c).size());
    assertTrue(a.matches("[A-Za-z0-9_-]{22,64}\\.[0-9]+"));
    assertEquals(a.split("\\.")[0], b.split("\\.")[0]);
    assertNotEquals(a.split("\\.")[0], c.split("\\.")[0]);
  }

  @Test void rule_03_untilCountsFromTheSendingWithMargins() throws Exception {
    assertEquals(1000000 + 10000 - 100 - 20, but("acquire", reply(500, 200, GRANT)).locks.lock("n").until);
    assertEquals(1000000 + 1000 - 10 - 10, but("acquire", reply(500, 200, GRANT.replace("10000", "1000"))).locks.lock("n").until);
  }

  @Test void rule_04_untilMovesOnlyForward() throws Exception {
    World w = but("renew", reply(100, 200, GRANT.replace("10000", "3000")));
    Locks.Hold h = w.locks.lock("n");
    double was = h.until;
    w.renew(h);
    assertEquals(was, h.until);
    w.renew(h);
    assertTrue(h.until > was);
  }

  @Test void rule_05_lateGrantIsReleased() throws Exception {
    World w = but("acquire", reply(10500, 200, GRANT.replace("=7", "=6")));
    assertEquals(7, w.locks.lock("n").token());
    assertEquals("acquire release acquire", w.paths());
    assertEquals(w.id(0), w.id(1));
    assertNotEquals(w.id(0), w.id(2));
  }

  @Test void rule_06_lossIsFinal() throws Exception {
    World w = but("renew", reply(10000, 200, GRANT.replace("10000", "20000")));
    Locks.Hold h = w.locks.lock("n");
    w.renew(h);
    assertEquals("expired", assertThrows(Locks.LostException.class, h::check).code);
    assertEquals("expired", h.lost().get());
    while (!w.paths().contains("release")) Thread.sleep(1); // by a thread of its own
    assertEquals("lost", h.release());
  }

  @Test void rule_06_checkComparesClocks() throws Exception {
    World w = but("");
    Locks.Hold h = w.locks.lock("n");
    w.now = h.until - 1;
    h.check();
    w.now = h.until;
    assertThrows(Locks.LostException.class, h::check);
  }

  @Test void rule_07_timesOfRenewals() throws Exception {
    World w = but("renew", reply(1000, 0, ""));
    Locks.Hold h = w.locks.lock("n");
    assertEquals(1003333, Math.round(w.due));
    w.now = w.due;
    w.renew(h);
    assertTrue(w.due - w.now >= 250 && w.due - w.now <= 750);
    double sent = w.now = w.due;
    w.renew(h);
    assertEquals(3333, Math.round(w.due - sent));
    assertTrue(w.asked.get(2).startsWith("1 renew"));
  }

  @Test void rule_08_clockIncludesSuspends(@TempDir Path dir) throws Exception {
    double before = Locks.bootTime();
    Locks.wall = () -> System.currentTimeMillis() + 3600000; // a step
    assertTrue(Locks.bootTime() - before < 60000);
    double up = Double.parseDouble(Files.readString(Locks.uptime).split(" ")[0]);
    Locks.uptime = Files.writeString(dir.resolve("uptime"), (up + 3600) + " 0");
    Locks.wall = () -> System.currentTimeMillis() + 7200000; // a suspend
    assertTrue(Locks.bootTime() - before >= 3599000);
    Locks.uptime = Path.of("/proc/uptime");
    Locks.wall = System::currentTimeMillis;
  }

  @Test void rule_09_releaseSaysMoved() throws Exception {
    Reply[] replies = {reply(100, 200, GRANT), reply(100, 0, ""), new Reply(100, 200, GRANT + "\nserver=b.2\ngroup=00000001", true)};
    for (Reply r : replies) {
      World w = but("renew", r);
      Locks.Hold h = w.locks.lock("n");
      w.renew(h);
      assertEquals("released", h.release());
      assertTrue(w.asked.get(2).endsWith("id=" + h.id + "&moved=" + (r != replies[0]) + "&name=n"), w.asked.get(2));
    }
  }

  @Test void rule_10_waysOutRelease() throws Exception {
    World w = but("acquire", reply(1000, 202, "state=waiting"));
    assertThrows(Locks.HeldException.class, () -> w.locks.lock("n", Duration.ofMillis(500), Map.of()));
    assertEquals("acquire release", w.paths());
    World dead = new World(p -> p.equals("acquire") ? reply(3000, 0, "") : null);
    assertThrows(Locks.UnavailableException.class, () -> dead.locks.lock("n"));
    assertTrue(dead.paths().endsWith("release"));
    World interrupted = new World(p -> {
      if (p.equals("acquire")) Thread.currentThread().interrupt();
      return p.equals("acquire") ? reply(100, 202, "state=waiting") : null;
    });
    assertThrows(InterruptedException.class, () -> interrupted.locks.lock("n"));
    assertEquals("acquire release", interrupted.paths());
  }

  @Test void rule_11_nextServerHasTheSameId() throws Exception {
    for (Reply r : List.of(reply(100, 0, ""), reply(100, 503, "code=draining"), reply(100, 500, "code=internal"),
        new Reply(100, 200, GRANT.replace("=7", "=9") + SIGNED, false))) {
      World w = but("acquire", r);
      assertEquals(7, w.locks.lock("n").token());
      assertTrue(w.asked.get(0).startsWith("0") && w.asked.get(1).startsWith("1"));
      assertEquals(w.id(0), w.id(1));
    }
  }

  @Test void rule_11_eachServerIsAskedBeforeTheWaitEnds() throws Exception {
    for (Duration wait : new Duration[] {Duration.ZERO, null}) {
      World w = but("acquire", reply(wait == null ? 11000 : 0, 0, ""));
      assertEquals(7, w.locks.lock("n", wait, Map.of()).token());
      assertTrue(w.asked.get(0).startsWith("0") && w.asked.get(1).startsWith("1"));
    }
    World dead = new World(p -> p.equals("acquire") ? reply(0, 0, "") : null);
    assertThrows(Locks.UnavailableException.class, () -> dead.locks.lock("n", Duration.ZERO, Map.of()));
    assertEquals("acquire acquire release", dead.paths());
  }

  @Test void rule_11_answerThatMakesNoSenseIsNone() throws Exception {
    for (String text : List.of("state=held\ntoken=x", "state=held\ntoken=7\nleft_ms=", "status=\nstate=held")) {
      World w = but("renew", reply(100, 200, text));
      Locks.Hold h = w.locks.lock("n");
      w.renew(h);
      h.check();
      assertEquals("released", h.release());
      assertTrue(w.asked.get(2).contains("moved=true"));
    }
  }

  @Test void rule_11_serverWithoutItsStoreIsLeft() throws Exception {
    for (String path : List.of("renew", "release")) {
      World w = but(path, reply(100, 200, path.equals("renew") ? "status=503\ncode=store_unknown\nleft_ms=9000" : "result=unknown"));
      Locks.Hold h = w.locks.lock("n");
      w.renew(h);
      assertEquals("released", h.release());
      StringJoiner at = new StringJoiner(" ");
      for (String a : w.asked) at.add(a.split(" ")[0]);
      assertEquals(path.equals("renew") ? "0 0 1" : "0 0 0 1", at.toString());
    }
  }

  @Test void rule_12_anotherGroupIsRefused() throws Exception {
    Reply foreign = new Reply(100, 200, GRANT.replace("10000", "99000") + "\nserver=a.1\ngroup=00000002", true);
    World w = but("renew", foreign);
    Locks.Hold h = w.locks.lock("n");
    double was = h.until;
    w.renew(h);
    assertEquals(was, h.until);
    World other = but("acquire", reply(100, 202, "state=waiting"), foreign);
    assertThrows(Locks.RefusedException.class, () -> other.locks.lock("n"));
  }

  @Test void rule_13_holdsNestByCount() throws Exception {
    World w = but("");
    try (Locks.Hold outer = w.locks.lock("n")) {
      try (Locks.Hold inner = w.locks.lock("n")) {
        assertSame(outer, inner);
      }
      outer.check();
      assertEquals("acquire", w.paths());
    }
    assertEquals("acquire release", w.paths());
    w.locks.lock("n");
    Thread other = new Thread(() -> { try { w.locks.lock("n"); } catch (InterruptedException e) { } });
    other.start();
    other.join();
    assertEquals("acquire release acquire acquire", w.paths());
  }

  @Test void rule_14_tokenNeedsTLS() {
    Duration ttl = Duration.ofSeconds(10);
    String text = assertThrows(IllegalArgumentException.class, () -> new Locks(List.of("http://lockd1:7420"), () -> "geheim", ttl, null)).getMessage();
    assertFalse(text.contains("geheim"));
    assertFalse(new Locks(List.of("https://lockd1:7420"), () -> "geheim", ttl, null).toString().contains("geheim"));
    for (String bad : List.of("ftp://h", "http://user:geheim@h", "https://h/path")) assertThrows(IllegalArgumentException.class, () -> new Locks(bad));
    assertThrows(IllegalArgumentException.class, () -> new Locks());
    String refused = assertThrows(Locks.RefusedException.class,
        () -> new Locks(List.of("http://127.0.0.1:1"), () -> "ge\nheim", ttl, null).lock("n")).getMessage();
    assertFalse(refused.contains("heim"));
    assertThrows(Locks.UnavailableException.class, // a token from a file ends with a new line
        () -> new Locks(List.of("http://127.0.0.1:1"), () -> "geheim\n", ttl, null).lock("n", Duration.ZERO, Map.of()));
  }

  @Test void rule_15_renewalHasOneId() throws Exception {
    World w = but("");
    Locks.Hold h = w.locks.lock("a");
    w.locks.lock("b");
    w.renew(h);
    assertEquals("0 renew id=" + h.id, w.asked.get(2));
  }

  @Test void rule_16_releaseIsBoundedAndTells() throws Exception {
    assertEquals("released", but("release", reply(100, 200, "result=released")).locks.lock("n").release());
    assertEquals("lost", but("release", reply(100, 200, "result=gone")).locks.lock("n").release());
    assertEquals("released", but("release", reply(100, 0, ""), reply(100, 200, "result=gone")).locks.lock("n").release());
    World w = new World(p -> p.equals("release") ? reply(400, 0, "") : null);
    Locks.Hold h = w.locks.lock("n");
    double began = w.now;
    assertEquals("unknown", h.release());
    assertTrue(w.now - began < 3334 + 400 + 750);
  }

  @Test void rule_17_doubtIsToldOnce() throws Exception {
    World w = but("");
    Locks.Hold h = w.locks.lock("n");
    w.now = h.until - 2600;
    h.check();
    assertThrows(TimeoutException.class, () -> h.doubt().get(200, TimeUnit.MILLISECONDS)); // by another thread
    w.now = h.until - 2400;
    h.check();
    h.doubt().get(10, TimeUnit.SECONDS);
  }

  @Test void rule_18_nextTryBeginsWithResume() throws Exception {
    Deque<Reply> answers = new ArrayDeque<>(List.of(reply(100, 200, GRANT), reply(100, 503, "code=store_unknown")));
    World w = new World(p -> p.equals("acquire") ? answers.poll() : p.equals("renew") ? reply(100, 200, "status=404\ncode=unknown_hold") : null);
    Locks.Hold h = w.locks.lock("n");
    w.renew(h);
    w.renew(h);
    assertEquals("acquire renew acquire acquire", w.paths());
    w.renew(h);
    assertTrue(w.asked.get(4).contains("renew"));
    h.check();
  }

  @Test void rule_18_holdThatWaitsElsewhereIsResumed() throws Exception {
    World w = but("renew", reply(100, 200, "state=waiting\nleft_ms=9000"));
    Locks.Hold h = w.locks.lock("n");
    w.renew(h);
    assertTrue(w.asked.get(w.asked.size() - 1).contains("resume=7"));
    h.check();
  }

  @Test void rule_18_unknownHoldIsResumedByItsToken() throws Exception {
    World w = but("renew", reply(100, 200, "status=404\ncode=unknown_hold"));
    Locks.Hold h = w.locks.lock("n");
    w.renew(h);
    assertTrue(w.asked.get(2).contains("acquire") && w.asked.get(2).contains("resume=7"));
    h.check();
    Deque<Reply> grants = new ArrayDeque<>(List.of(reply(100, 200, GRANT), reply(100, 200, GRANT.replace("=7", "=8"))));
    World other = new World(p -> p.equals("acquire") ? grants.poll() : p.equals("renew") ? reply(100, 200, "status=404\ncode=unknown_hold") : null);
    Locks.Hold lost = other.locks.lock("n");
    other.renew(lost);
    assertThrows(Locks.LostException.class, lost::check);
  }
}
