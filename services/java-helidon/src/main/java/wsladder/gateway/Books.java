package wsladder.gateway;

import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import wsladder.gateway.Protocol.Kind;

/**
 * All counters, behind one lock, so that the counts of each snapshot balance. A session counts all
 * frames of a read of its socket together, not one by one.
 */
final class Books {
  /** Upper bounds of the flush lateness histogram, in seconds. */
  static final double[] LATENESS_BOUNDS = {
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5
  };

  /** The counters. {@code waiting} and {@code inFlight} are frames, not bytes or requests. */
  static final class Counts {
    long received;
    long consumed;
    long delivered;
    final Map<String, Long> dropped = new TreeMap<>();
    long waiting;
    long inFlight;
    long sent;
    long bytesReceived;
    long bytesSent;
    long accepted;
    long open;
    final Map<String, Long> closed = new TreeMap<>();
    final Map<String, Long> rejected = new TreeMap<>();
    long requests;
    long answered;
    final Map<String, Long> failed = new TreeMap<>();
    long abandoned;
    long requestsInFlight;
    long inFlightPerConnectionMax;
    long ticksFlushed;
    long ticksSkipped;
    long ticksEmpty;

    /** Ticks per bucket: within a bound and above the one before. The last bucket has no bound. */
    final long[] lateness = new long[LATENESS_BOUNDS.length + 1];

    long latenessSumNanos;

    /** Counts frames or refused messages that get no partial. */
    void drop(String reason, long count) {
      add(dropped, reason, count);
    }

    /** Adds the lateness of a tick to the histogram. */
    void tick(long latenessNanos) {
      double seconds = latenessNanos / 1e9;
      int bucket = 0;
      while (bucket < LATENESS_BOUNDS.length && seconds > LATENESS_BOUNDS[bucket]) {
        bucket++;
      }
      lateness[bucket]++;
      latenessSumNanos += latenessNanos;
    }

    /** Counts a request that begins. {@code inFlightOfConnection} includes it. */
    void startRequest(int frames, int inFlightOfConnection) {
      waiting -= frames;
      inFlight += frames;
      requests++;
      requestsInFlight++;
      inFlightPerConnectionMax = Math.max(inFlightPerConnectionMax, inFlightOfConnection);
    }

    /** Counts a request that ended with a partial. */
    void completeRequest(int frames) {
      inFlight -= frames;
      requestsInFlight--;
      answered++;
      delivered += frames;
      sent++;
    }

    /** Counts a request that failed; its frames get an error. */
    void failRequest(Kind kind, int frames) {
      inFlight -= frames;
      requestsInFlight--;
      add(failed, kind.wire, 1);
      drop(kind.wire, frames);
      sent++;
    }

    /** Counts a request whose connection ended before the response. */
    void abandonRequest(int frames) {
      inFlight -= frames;
      requestsInFlight--;
      abandoned++;
      drop("closed", frames);
    }

    /** Counts a session that ended while {@code waitingFrames} frames waited. */
    void close(CloseReason reason, int waitingFrames) {
      if (reason.refused()) {
        received++;
        drop("protocol", 1);
      }
      waiting -= waitingFrames;
      drop("closed", waitingFrames);
      open--;
      add(closed, reason.label(), 1);
    }

    /** Counts a valid start message. */
    void countStart() {
      received++;
      consumed++;
    }

    /**
     * Counts a read of the socket: its bytes, its complete frames, and frames that exceeded the
     * limit and were dropped.
     */
    void receive(int bytes, int frames, int dropped) {
      bytesReceived += bytes;
      received += frames;
      waiting += frames - dropped;
      drop(Kind.OVERFLOW.wire, dropped);
    }

    /** Counts a refused handshake. */
    void reject(String reason) {
      add(rejected, reason, 1);
    }

    long bufferedBytes() {
      return (waiting + inFlight) * Protocol.FRAME_BYTES;
    }

    private static void add(Map<String, Long> counts, String name, long count) {
      if (count > 0) {
        counts.merge(name, count, Long::sum);
      }
    }

    private Counts copy() {
      Counts copy = new Counts();
      copy.received = received;
      copy.consumed = consumed;
      copy.delivered = delivered;
      copy.dropped.putAll(dropped);
      copy.waiting = waiting;
      copy.inFlight = inFlight;
      copy.sent = sent;
      copy.bytesReceived = bytesReceived;
      copy.bytesSent = bytesSent;
      copy.accepted = accepted;
      copy.open = open;
      copy.closed.putAll(closed);
      copy.rejected.putAll(rejected);
      copy.requests = requests;
      copy.answered = answered;
      copy.failed.putAll(failed);
      copy.abandoned = abandoned;
      copy.requestsInFlight = requestsInFlight;
      copy.inFlightPerConnectionMax = inFlightPerConnectionMax;
      copy.ticksFlushed = ticksFlushed;
      copy.ticksSkipped = ticksSkipped;
      copy.ticksEmpty = ticksEmpty;
      System.arraycopy(lateness, 0, copy.lateness, 0, lateness.length);
      copy.latenessSumNanos = latenessSumNanos;
      return copy;
    }

    @Override
    public String toString() {
      return "received %d, waiting %d, in flight %d, lateness %s"
          .formatted(received, waiting, inFlight, Arrays.toString(lateness));
    }
  }

  private final ReentrantLock lock = new ReentrantLock();
  private final Counts counts = new Counts();
  private final int maxConnections;
  private volatile boolean isAccepting = true;

  /**
   * Creates empty books.
   *
   * @param maxConnections limit of open connections; 0: no limit
   */
  Books(int maxConnections) {
    this.maxConnections = maxConnections;
  }

  /** Runs {@code update} with the counters, under the lock. */
  void update(Consumer<Counts> update) {
    lock.lock();
    try {
      update.accept(counts);
    } finally {
      lock.unlock();
    }
  }

  /** Returns a consistent copy of the counters. */
  Counts snapshot() {
    lock.lock();
    try {
      return counts.copy();
    } finally {
      lock.unlock();
    }
  }

  /** Whether another connection was admitted, and if not, why. */
  enum Admission {
    ADMITTED,
    FULL,
    DRAINING
  }

  /** Admits a connection and counts it as open, or counts it as refused. */
  Admission admit() {
    lock.lock();
    try {
      if (!isAccepting) {
        counts.reject("draining");
        return Admission.DRAINING;
      }
      if (maxConnections > 0 && counts.open >= maxConnections) {
        counts.reject("full");
        return Admission.FULL;
      }
      counts.accepted++;
      counts.open++;
      return Admission.ADMITTED;
    } finally {
      lock.unlock();
    }
  }

  boolean isAccepting() {
    return isAccepting;
  }

  void stopAccepting() {
    lock.lock();
    try {
      isAccepting = false;
    } finally {
      lock.unlock();
    }
  }
}
