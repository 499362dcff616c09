package wsladder.gateway;

/**
 * When a session's flush ticks are due, and when its socket is read between them. Times are those
 * of {@link System#nanoTime}; the caller passes the current time.
 */
final class Schedule {
  /**
   * Longest time between two reads. Pings and Close frames must be answered within 500 ms; the
   * difference allows for the delays of a busy machine.
   */
  static final long MAX_PAUSE_NANOS = 340_000_000L;

  private final long intervalNanos;
  private long due;

  /** Creates a schedule with its first tick at {@code first}. It is absolute: it doesn't drift. */
  Schedule(long first, long intervalNanos) {
    this.due = first;
    this.intervalNanos = intervalNanos;
  }

  boolean isDue(long now) {
    return now - due >= 0;
  }

  /**
   * Returns when the socket must be read next: at the tick, or before it, so that the reads until
   * the tick are evenly spaced.
   */
  long nextRead(long now) {
    long untilTick = due - now;
    if (untilTick <= MAX_PAUSE_NANOS) {
      return due;
    }
    long pauses = Math.ceilDiv(untilTick, MAX_PAUSE_NANOS);
    return now + untilTick / pauses;
  }

  /**
   * Advances past the due tick and returns its lateness in nanoseconds. The next tick is the first
   * one in the future: missed ticks are skipped.
   */
  long tick(long now) {
    long lateness = now - due;
    due += intervalNanos * (lateness / intervalNanos + 1);
    return lateness;
  }
}
