package io.github.holdfastgo;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;

/** Counts in a file under a lock, for `make clients`: Worker NAME CLIENTS TURNS FILE. */
final class Worker {
  private static synchronized void write(String what, int g, int n, String more) {
    System.out.println("{\"t\":" + System.nanoTime() + ",\"e\":\"" + what + "\",\"g\":" + g + ",\"n\":" + n + more + "}");
    System.out.flush();
  }

  /** Asks in each turn with wait_ms 0 first, and writes that there is a place, for the checker's order. */
  private static void tellPlaces(Locks locks, int g, AtomicInteger n) {
    Locks.Sender send = locks.sender;
    Set<Integer> asked = new HashSet<>();
    locks.sender = (at, path, form, limit) -> {
      if (!path.equals("/v1/acquire") || !asked.add(n.get())) return send.send(at, path, form, limit);
      Locks.Answer a = send.send(at, path, form.replaceAll("wait_ms=[0-9]+", "wait_ms=0"), limit);
      if (a.status == 202 && a.left > 0) write("wait", g, n.get(), "");
      return a;
    };
  }

  public static void main(String[] args) throws Exception {
    int clients = Integer.parseInt(args[1]), turns = Integer.parseInt(args[2]);
    Path file = Path.of(args[3]);
    String[] servers = System.getenv("HOLDFAST_SERVERS").split(",");
    AtomicInteger failed = new AtomicInteger();
    CountDownLatch done = new CountDownLatch(clients);
    for (int i = 0; i < clients; i++) {
      int g = i;
      new Thread(() -> {
        Locks locks = new Locks(servers[g % 2], servers[1 - g % 2]);
        AtomicInteger current = new AtomicInteger();
        tellPlaces(locks, g, current);
        try {
          for (int turn = 0; turn < turns; turn++) {
            int n = 1 + g * turns + turn;
            current.set(n);
            write("ask", g, n, ",\"name\":\"" + args[0] + "\",\"units\":1,\"limit\":1,\"alone\":true");
            Locks.Hold hold = locks.lock(args[0]);
            write("got", g, n, ",\"tok\":" + hold.token() + ",\"end\":" + (long) (hold.until * 1e6));
            int value = Integer.parseInt(Files.readString(file).trim());
            Files.writeString(file, value + 1 + "\n");
            hold.check();
            write("out", g, n, ",\"end\":" + (long) (hold.until * 1e6));
            if (!hold.release().equals("released")) failed.incrementAndGet();
            write("done", g, n, "");
          }
        } catch (Exception e) {
          e.printStackTrace();
          failed.incrementAndGet();
        } finally {
          done.countDown();
        }
      }).start();
    }
    done.await();
    System.exit(failed.get() > 0 ? 1 : 0);
  }
}
