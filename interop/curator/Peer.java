import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

/**
 * Apache Curator's locks, driven line by line by the tests of zklock. It says
 * "ready", and then one line for each of these on its standard input:
 *
 * <pre>
 * try KIND PATH          held, or busy
 * lock KIND PATH         held, when it is
 * unlock KIND PATH       released
 * count PATH NODE TIMES  counted, when NODE's number was raised so often
 * </pre>
 *
 * KIND is mutex, read or write. A lock belongs to a thread of its own, because
 * Curator's are reentrant by thread.
 */
public class Peer {
    private final CuratorFramework client;
    private final Map<String, InterProcessLock> locks = new HashMap<>();
    private final Map<String, ExecutorService> threads = new HashMap<>();

    private Peer(CuratorFramework client) {
        this.client = client;
    }

    public static void main(String[] args) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(args[0], 10_000, 10_000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        Peer peer = new Peer(client);
        say("ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            peer.obey(line.split(" "));
        }
        peer.threads.values().forEach(ExecutorService::shutdownNow);
        client.close();
    }

    private static synchronized void say(String s) {
        System.out.println(s);
        System.out.flush();
    }

    private InterProcessLock lock(String kind, String path) {
        return locks.computeIfAbsent(kind + " " + path, key -> {
            switch (kind) {
                case "read":
                    return new InterProcessReadWriteLock(client, path).readLock();
                case "write":
                    return new InterProcessReadWriteLock(client, path).writeLock();
                default:
                    return new InterProcessMutex(client, path);
            }
        });
    }

    private void obey(String[] words) {
        String key = words[1] + " " + words[2];
        threads.computeIfAbsent(key, k -> Executors.newSingleThreadExecutor()).execute(() -> {
            try {
                switch (words[0]) {
                    case "try":
                        say(lock(words[1], words[2]).acquire(0, TimeUnit.SECONDS) ? "held" : "busy");
                        break;
                    case "lock":
                        lock(words[1], words[2]).acquire();
                        say("held");
                        break;
                    case "unlock":
                        lock(words[1], words[2]).release();
                        say("released");
                        break;
                    case "count":
                        count(words[1], words[2], Integer.parseInt(words[3]));
                        say("counted");
                        break;
                    default:
                        say("unknown: " + words[0]);
                }
            } catch (Exception e) {
                say("failed: " + e);
            }
        });
    }

    private void count(String path, String node, int times) throws Exception {
        InterProcessLock lock = lock("mutex", path);
        for (int i = 0; i < times; i++) {
            lock.acquire();
            try {
                int n = Integer.parseInt(new String(client.getData().forPath(node)));
                client.setData().forPath(node, Integer.toString(n + 1).getBytes());
            } finally {
                lock.release();
            }
        }
    }
}
