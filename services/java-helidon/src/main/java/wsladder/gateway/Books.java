package wsladder.gateway;

import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Consumer;
import wsladder.gateway.Protocol.Kind;

/**
 * Everything that is counted, behind one lock, so that each reading balances. A session makes one
 * entry per read of its socket, not one per frame.
 */
final class Books {
  /** Upper bounds of the histogram of flush lateness, in seconds. */
  static final double[] LATENESS_BOUNDS = {
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5
  };

  /** The counters. Frames are counted as frames, not as bytes. */
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

    /** Ticks within each bound but not within the one before; the last is without a bound. */
    final long[] lateness = new long[LATENESS_BOUNDS.length + 1];

    long latenessSumNanos;

    /** Frames or refused messages that get no partial. */
    void drop(String reason, long count) {
      add(dropped, reason, count);
    }

    /** A tick, and how late it ran. */
    void tick(long latenessNanos) {
      double seconds = latenessNanos / 1e9;
      int bucket = 0;
      while (bucket < LATENESS_BOUNDS.length && seconds > LATENESS_BOUNDS[bucket]) {
        bucket++;
      }
      lateness[bucket]++;
      latenessSumNanos += latenessNanos;
    }

    /** A request begins. */
    void depart(int frames, int inFlightOfConnection) {
      waiting -= frames;
      inFlight += frames;
      requests++;
      requestsInFlight++;
      inFlightPerConnectionMax = Math.max(inFlightPerConnectionMax, inFlightOfConnection);
    }

    /** A request ended with a partial. */
    void deliver(int frames) {
      inFlight -= frames;
      requestsInFlight--;
      answered++;
      delivered += frames;
      sent++;
    }

    /** A request failed. */
    void fail(Kind kind, int frames) {
      inFlight -= frames;
      requestsInFlight--;
      add(failed, kind.wire, 1);
      drop(kind.wire, frames);
      sent++;
    }

    /** A request's connection ended first. */
    void abandon(int frames) {
      inFlight -= frames;
      requestsInFlight--;
      abandoned++;
      drop("closed", frames);
    }

    /** A session ended while so many frames waited. */
    void close(End how, int waitingFrames) {
      if (how.refused()) {
        received++;
        drop("protocol", 1);
      }
      waiting -= waitingFrames;
      drop("closed", waitingFrames);
      open--;
      add(closed, how.reason(), 1);
    }

    /** A start message. */
    void start() {
      received++;
      consumed++;
    }

    /** So many bytes were read, and frames in them; others were dropped to make room. */
    void arrive(int bytes, int frames, int dropped) {
      bytesReceived += bytes;
      received += frames;
      waiting += frames - dropped;
      drop(Kind.OVERFLOW.wire, dropped);
    }

    /** A handshake was refused. */
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
  private volatile boolean accepting = true;

  /**
   * Empty books.
   *
   * @param maxConnections that may be open; 0: no limit
   */
  Books(int maxConnections) {
    this.maxConnections = maxConnections;
  }

  /** Makes an entry. */
  void enter(Consumer<Counts> entry) {
    lock.lock();
    try {
      entry.accept(counts);
    } finally {
      lock.unlock();
    }
  }

  /** A consistent reading. */
  Counts read() {
    lock.lock();
    try {
      return counts.copy();
    } finally {
      lock.unlock();
    }
  }

  /** Whether a further connection may be opened. */
  enum Admission {
    ADMITTED,
    FULL,
    DRAINING
  }

  /** Counts a connection as open, or as refused. */
  Admission admit() {
    lock.lock();
    try {
      if (!accepting) {
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
    return accepting;
  }

  void stopAccepting() {
    lock.lock();
    try {
      accepting = false;
    } finally {
      lock.unlock();
    }
  }
}
