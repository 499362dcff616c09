package wsladder.gateway;

import io.helidon.webserver.CloseConnectionException;
import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;

/**
 * The virtual thread that reads a session's socket and on which Helidon parses frames. It holds the
 * session's lock while it runs, and releases the lock while it is paused or reads the socket.
 */
final class ReaderThread {
  private enum State {
    /** The thread parses frames or runs a tick. It holds the lock. */
    RUNNING,
    /** The thread waits for {@link #resume}. */
    PAUSED,
    /** {@link #resume} was called, and the thread doesn't run yet. */
    RESUMING,
    /** The thread reads the socket or waits for bytes. */
    READING
  }

  private final ReentrantLock lock;
  private Thread thread;
  private volatile State state = State.RUNNING;

  /**
   * Creates the state of a thread that {@link #attach} names later.
   *
   * @param lock the session's lock
   */
  ReaderThread(ReentrantLock lock) {
    this.lock = lock;
  }

  /** Makes the calling thread the reader. */
  void attach() {
    thread = Thread.currentThread();
  }

  /** Reads the socket with {@code read} and without the lock. Called by the reader. */
  byte[] read(Supplier<byte[]> read) {
    state = State.READING;
    lock.unlock();
    try {
      return read.get();
    } finally {
      lock.lock();
      state = State.RUNNING;
    }
  }

  /**
   * Waits without the lock until another thread calls {@link #resume}. Called by the reader.
   *
   * @throws CloseConnectionException if the thread is interrupted
   */
  void pause() {
    state = State.PAUSED;
    lock.unlock();
    try {
      while (state == State.PAUSED) {
        LockSupport.park(this);
        if (Thread.interrupted()) {
          throw new CloseConnectionException("interrupted");
        }
      }
    } finally {
      lock.lock();
      state = State.RUNNING;
    }
  }

  boolean isPaused() {
    return state == State.PAUSED;
  }

  /** Whether the thread reads a socket that has no bytes. */
  boolean isWaitingForBytes() {
    return state == State.READING && thread.getState() == Thread.State.WAITING;
  }

  /** Ends the pause of the reader. The caller holds the lock. */
  void resume() {
    state = State.RESUMING;
    LockSupport.unpark(thread);
  }
}
