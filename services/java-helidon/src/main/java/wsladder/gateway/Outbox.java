package wsladder.gateway;

import io.helidon.common.buffers.BufferData;
import io.helidon.common.buffers.DataWriter;
import java.util.ArrayDeque;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.LongConsumer;

/**
 * What waits for a client that may read slowly. Helidon's WebSocket writes its frames into it and
 * never waits for the socket; {@link #flush} does, one thread at a time.
 */
final class Outbox implements DataWriter {
  /** What may wait. */
  static final int MAX_BYTES = 64 << 10;

  /** How long a client may take none of it. */
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
   * An empty outbox.
   *
   * @param written is told how many bytes the socket took
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

  /** Whether the client takes too little. */
  boolean isStalled(long now) {
    lock.lock();
    try {
      return bytes > MAX_BYTES || (bytes > 0 && now - progress > MAX_STALL_NANOS);
    } finally {
      lock.unlock();
    }
  }

  /** Writes what waits. May wait for the client; returns at once while another thread writes. */
  @Override
  public void flush() {
    byte[] frame = take();
    while (frame != null) {
      try {
        socket.writeNow(BufferData.create(frame));
      } catch (RuntimeException e) {
        // The client is gone, which its reader sees too. What waits is for nobody.
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

  /** Waits until nothing waits any more, at most until {@code deadline}. */
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
