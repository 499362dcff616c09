package wsladder.gateway;

/**
 * When a session's flush ticks are due, and when its socket is visited in between. Times are those
 * of {@link System#nanoTime}. Pure.
 */
final class Schedule {
  /**
   * Longest time between two visits. Pings and closes must be answered within 500 ms; the rest of
   * that is for a busy machine.
   */
  static final long PAUSE_NANOS = 340_000_000L;

  private final long intervalNanos;
  private long due;

  /** Ticks from {@code first} on. The schedule is absolute: it does not drift. */
  Schedule(long first, long intervalNanos) {
    this.due = first;
    this.intervalNanos = intervalNanos;
  }

  boolean isDue(long now) {
    return now - due >= 0;
  }

  /** When the socket should be visited next: at the tick, or some equal pauses before it. */
  long wake(long now) {
    long rest = due - now;
    if (rest <= PAUSE_NANOS) {
      return due;
    }
    long pauses = Math.ceilDiv(rest, PAUSE_NANOS);
    return now + rest / pauses;
  }

  /**
   * Runs the tick that is due and returns how late it is. The next one is the first in the future:
   * missed ticks are not made up for.
   */
  long tick(long now) {
    long lateness = now - due;
    due += intervalNanos * (lateness / intervalNanos + 1);
    return lateness;
  }
}
