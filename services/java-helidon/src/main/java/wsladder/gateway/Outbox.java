package wsladder.gateway;

import io.helidon.common.buffers.BufferData;
import io.helidon.common.buffers.DataWriter;
import java.util.ArrayDeque;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongConsumer;

/**
 * The frames that wait to be written to a client. Helidon's WebSocket writes its frames into it and
 * never waits for the socket. {@link #flush} writes them to the socket and may wait, one thread at
 * a time.
 */
final class Outbox implements DataWriter {
  /** A client with more waiting bytes than this counts as stalled. */
  static final int MAX_BYTES = 64 << 10;

  /** Longest time without progress while bytes wait. */
  static final long MAX_STALL_NANOS = 10_000_000_000L;

  private final DataWriter socket;
  private final LongConsumer onWritten;
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition drained = lock.newCondition();
  private final ArrayDeque<byte[]> frames = new ArrayDeque<>();
  private int bytes;
  private boolean isFlushing;
  private boolean hasFailed;
  private long lastProgress;

  /**
   * Creates an empty outbox.
   *
   * @param onWritten called with the number of bytes after each write to the socket
   */
  Outbox(DataWriter socket, LongConsumer onWritten) {
    this.socket = socket;
    this.onWritten = onWritten;
  }

  @Override
  public void write(BufferData buffer) {
    byte[] frame = buffer.readBytes();
    lock.lock();
    try {
      if (bytes == 0) {
        lastProgress = System.nanoTime();
      }
      frames.addLast(frame);
      bytes += frame.length;
    } finally {
      lock.unlock();
    }
  }

  @Override
  public void write(BufferData... buffers) {
    for (BufferData buffer : buffers) {
      write(buffer);
    }
  }

  @Override
  public void writeNow(BufferData buffer) {
    write(buffer);
  }

  @Override
  public void writeNow(BufferData... buffers) {
    write(buffers);
  }

  /**
   * Whether the client reads too slowly: more than {@code MAX_BYTES} wait, or the socket has taken
   * none for {@code MAX_STALL_NANOS}.
   */
  boolean isStalled(long now) {
    lock.lock();
    try {
      return bytes > MAX_BYTES || (bytes > 0 && now - lastProgress > MAX_STALL_NANOS);
    } finally {
      lock.unlock();
    }
  }

  /**
   * Writes the waiting frames. May block until the client reads; returns at once if another thread
   * is writing.
   */
  @Override
  public void flush() {
    byte[] frame = takeFirst();
    while (frame != null) {
      try {
        socket.writeNow(BufferData.create(frame));
      } catch (RuntimeException e) {
        // The connection failed. The session's reader detects that, too, so the waiting frames are
        // dropped.
        discard();
        return;
      }
      onWritten.accept(frame.length);
      frame = takeNext(frame.length);
    }
  }

  /** Returns the first frame, or {@code null} if there is none or another thread is writing. */
  private byte[] takeFirst() {
    lock.lock();
    try {
      if (isFlushing || hasFailed || frames.isEmpty()) {
        return null;
      }
      isFlushing = true;
      return frames.removeFirst();
    } finally {
      lock.unlock();
    }
  }

  /** Counts {@code written} bytes and returns the next frame; {@code null} if there is none. */
  private byte[] takeNext(int written) {
    lock.lock();
    try {
      bytes -= written;
      lastProgress = System.nanoTime();
      if (frames.isEmpty()) {
        isFlushing = false;
        drained.signalAll();
        return null;
      }
      return frames.removeFirst();
    } finally {
      lock.unlock();
    }
  }

  private void discard() {
    lock.lock();
    try {
      hasFailed = true;
      isFlushing = false;
      frames.clear();
      bytes = 0;
      drained.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** Blocks until the outbox is empty or a write failed, at most until {@code deadline}. */
  void awaitEmpty(long deadline) throws InterruptedException {
    lock.lock();
    try {
      long remaining = deadline - System.nanoTime();
      while (bytes > 0 && !hasFailed && remaining > 0) {
        drained.await(remaining, TimeUnit.NANOSECONDS);
        remaining = deadline - System.nanoTime();
      }
    } finally {
      lock.unlock();
    }
  }
}
