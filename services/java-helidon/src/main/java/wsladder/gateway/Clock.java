package wsladder.gateway;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A timer wheel: fires the alarms of sessions, on one platform thread, in rounds of 5 ms. Under
 * load one wake-up of this thread serves many sessions, and the carrier threads run them one after
 * the other. The cost is a mean lateness of half a round.
 */
final class Clock implements Runnable {
  /** Length of a round, in nanoseconds. */
  static final long ROUND_NANOS = 5_000_000;

  /** The return value of {@link AlarmListener#onAlarm} that sets no further alarm. */
  static final long NEVER = Long.MAX_VALUE;

  /**
   * Rounds that the wheel holds, a power of two. An alarm beyond them fires early, and its listener
   * returns the same time again.
   */
  private static final int SLOTS = 512;

  /** A receiver of alarms. It must not block, because all sessions share the clock's thread. */
  interface AlarmListener {
    /**
     * Called when an alarm fires: in the first round at or after {@code scheduledAt}, or early if
     * {@code scheduledAt} is too far ahead.
     *
     * @return the time of the next alarm, or {@link #NEVER}
     */
    long onAlarm(long scheduledAt, long now);
  }

  private record Alarm(AlarmListener listener, long at) {}

  private final ReentrantLock lock = new ReentrantLock();
  private final List<List<Alarm>> slots = new ArrayList<>(SLOTS);
  private final long origin = System.nanoTime();
  private final Thread thread = Thread.ofPlatform().daemon().name("clock").unstarted(this);

  /** Number of the next round to run. */
  private long nextRound;

  private int pending;

  Clock() {
    for (int i = 0; i < SLOTS; i++) {
      slots.add(new ArrayList<>());
    }
  }

  void start() {
    thread.start();
  }

  /**
   * Sets an alarm for {@code at}, a time of {@link System#nanoTime}. If that time is in the past,
   * the alarm fires in the next round.
   */
  void set(AlarmListener listener, long at) {
    boolean wasEmpty;
    lock.lock();
    try {
      wasEmpty = pending == 0;
      add(new Alarm(listener, at));
    } finally {
      lock.unlock();
    }
    if (wasEmpty) {
      LockSupport.unpark(thread);
    }
  }

  private void add(Alarm alarm) {
    long round = Math.ceilDiv(alarm.at() - origin, ROUND_NANOS);
    round = Math.clamp(round, nextRound, nextRound + SLOTS - 1);
    slots.get((int) (round % SLOTS)).add(alarm);
    pending++;
  }

  @Override
  public void run() {
    List<Alarm> due = new ArrayList<>();
    while (true) {
      long sleep = collect(due);
      long now = System.nanoTime();
      for (Alarm alarm : due) {
        long nextAt = alarm.listener().onAlarm(alarm.at(), now);
        if (nextAt != NEVER) {
          set(alarm.listener(), nextAt);
        }
      }
      if (!due.isEmpty()) {
        due.clear();
      } else if (sleep == NEVER) {
        LockSupport.park(this);
      } else {
        LockSupport.parkNanos(this, sleep);
      }
    }
  }

  /**
   * Moves the due alarms into {@code due}. Returns the nanoseconds until the next round, or {@link
   * #NEVER} if no alarm is set.
   */
  private long collect(List<Alarm> due) {
    lock.lock();
    try {
      long now = System.nanoTime() - origin;
      long round = now / ROUND_NANOS;
      // After a stall, each slot is visited only once.
      long first = Math.max(nextRound, round - SLOTS + 1);
      for (long each = first; each <= round; each++) {
        List<Alarm> alarms = slots.get((int) (each % SLOTS));
        due.addAll(alarms);
        alarms.clear();
      }
      nextRound = Math.max(nextRound, round + 1);
      pending -= due.size();
      return pending == 0 ? NEVER : nextRound * ROUND_NANOS - now;
    } finally {
      lock.unlock();
    }
  }
}
