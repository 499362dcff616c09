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
  /** Limit of the waiting bytes. */
  static final int MAX_BYTES = 64 << 10;

  /** Longest time without progress while bytes wait. */
  static final long MAX_STALL_NANOS = 10_000_000_000L;

  private final DataWriter socket;
  private final LongConsumer written;
  private final ReentrantLock lock = new ReentrantLock();
  private final Condition idle = lock.newCondition();
  private final ArrayDeque<byte[]> frames = new ArrayDeque<>();
  private int bytes;
  private boolean flushing;
  private boolean broken;
  private long progress;

  /**
   * Creates an empty outbox.
   *
   * @param written called with the number of bytes after each write to the socket
   */
  Outbox(DataWriter socket, LongConsumer written) {
    this.socket = socket;
    this.written = written;
  }

  @Override
  public void write(BufferData buffer) {
    byte[] frame = buffer.readBytes();
    lock.lock();
    try {
      if (bytes == 0) {
        progress = System.nanoTime();
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
   * Whether the client reads too slowly: more bytes wait than the limit, or none were taken for too
   * long.
   */
  boolean isStalled(long now) {
    lock.lock();
    try {
      return bytes > MAX_BYTES || (bytes > 0 && now - progress > MAX_STALL_NANOS);
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
    byte[] frame = take();
    while (frame != null) {
      try {
        socket.writeNow(BufferData.create(frame));
      } catch (RuntimeException e) {
        // The client is gone. The session's reader detects that, too, so the waiting frames are
        // dropped.
        discard();
        return;
      }
      written.accept(frame.length);
      frame = next(frame.length);
    }
  }

  private byte[] take() {
    lock.lock();
    try {
      if (flushing || broken || frames.isEmpty()) {
        return null;
      }
      flushing = true;
      return frames.removeFirst();
    } finally {
      lock.unlock();
    }
  }

  private byte[] next(int taken) {
    lock.lock();
    try {
      bytes -= taken;
      progress = System.nanoTime();
      if (frames.isEmpty()) {
        flushing = false;
        idle.signalAll();
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
      broken = true;
      flushing = false;
      frames.clear();
      bytes = 0;
      idle.signalAll();
    } finally {
      lock.unlock();
    }
  }

  /** Blocks until the outbox is empty or its client is gone, at most until {@code deadline}. */
  void awaitEmpty(long deadline) throws InterruptedException {
    lock.lock();
    try {
      long rest = deadline - System.nanoTime();
      while (bytes > 0 && !broken && rest > 0) {
        idle.await(rest, TimeUnit.NANOSECONDS);
        rest = deadline - System.nanoTime();
      }
    } finally {
      lock.unlock();
    }
  }
}
