package wsladder.gateway;

import io.helidon.common.buffers.BufferData;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Optional;
import wsladder.gateway.Protocol.Span;

/**
 * The frames of a session that wait: their audio back to back, when they were read, and which were
 * dropped because too many waited. Pure.
 */
final class Inbox {
  /** Frames up to {@code newest}, and not those of the mark before, were read at {@code at}. */
  private record Mark(long newest, long at) {}

  /** Frames that left the inbox, and when the first and the last of them had been read. */
  record Taken(Span span, long oldestRead, long newestRead) {}

  /** A batch for the inference; its audio is {@code length} bytes from {@code offset} on. */
  record Batch(Taken taken, byte[] audio, int offset, int length) {}

  private static final byte[] NONE = {};

  private final int maxFrames;
  private final int usualBytes;
  private final ArrayDeque<Mark> marks = new ArrayDeque<>();
  private byte[] audio = NONE;

  /** Memory of an earlier batch, for the next one. */
  private byte[] spare = NONE;

  private int begin;
  private int end;
  private long left;
  private long marked;
  private Taken overflow;

  /**
   * An empty inbox.
   *
   * @param maxFrames that may wait
   * @param usualFrames of a batch: memory for so many is taken at once
   */
  Inbox(int maxFrames, int usualFrames) {
    this.maxFrames = maxFrames;
    this.usualBytes = usualFrames * Protocol.FRAME_BYTES;
  }

  /** Frames that wait. */
  int frames() {
    return (end - begin) / Protocol.FRAME_BYTES;
  }

  /** Adds one frame of 640 bytes. */
  void add(BufferData frame) {
    if (audio.length - end < Protocol.FRAME_BYTES) {
      makeRoom();
    }
    end += frame.read(audio, end, Protocol.FRAME_BYTES);
  }

  private void makeRoom() {
    int waiting = end - begin;
    if (begin >= waiting && begin > 0) {
      System.arraycopy(audio, begin, audio, 0, waiting);
    } else {
      int size = Math.max(usualBytes, waiting + waiting / 2 + Protocol.FRAME_BYTES);
      byte[] larger = new byte[size];
      System.arraycopy(audio, begin, larger, 0, waiting);
      audio = larger;
    }
    begin = 0;
    end = waiting;
  }

  /** Notes that the frames added since the last mark were read at {@code at}; returns how many. */
  int mark(long at) {
    long came = left + frames();
    int arrived = (int) (came - marked);
    if (arrived > 0) {
      marks.addLast(new Mark(came, at));
      marked = came;
    }
    return arrived;
  }

  /** Drops the oldest frames if more wait than may; returns how many. All must be marked. */
  int dropExcess() {
    int excess = frames() - maxFrames;
    if (excess <= 0) {
      return 0;
    }
    Taken later = leave(excess);
    // Frames leave in another way only once this was reported: so the later ones follow directly.
    overflow =
        overflow == null
            ? later
            : new Taken(
                new Span(overflow.span().oldest(), overflow.span().frames() + excess),
                overflow.oldestRead(),
                later.newestRead());
    begin += excess * Protocol.FRAME_BYTES;
    return excess;
  }

  /** Frames that were dropped and not reported yet. */
  Optional<Taken> takeOverflow() {
    Optional<Taken> dropped = Optional.ofNullable(overflow);
    overflow = null;
    return dropped;
  }

  /** Takes all frames, of which there is at least one and which are all marked. */
  Batch take() {
    Batch batch = new Batch(leave(frames()), audio, begin, end - begin);
    audio = spare;
    spare = NONE;
    begin = 0;
    end = 0;
    return batch;
  }

  /** Gives the memory of a batch back, to be used for the next one. */
  void recycle(byte[] memory) {
    // What a burst needed must not stay in memory for the rest of the session.
    if (memory.length > usualBytes) {
      return;
    }
    if (end == 0) {
      audio = memory;
    } else {
      spare = memory;
    }
  }

  /** Drops everything that waits; returns how many frames that are. */
  int clear() {
    int frames = frames();
    left += frames;
    marked = left;
    audio = NONE;
    spare = NONE;
    begin = 0;
    end = 0;
    marks.clear();
    return frames;
  }

  private Taken leave(int frames) {
    Span span = new Span(left + 1, frames);
    left += frames;
    final long oldestRead = marks.getFirst().at();
    while (marks.getFirst().newest() < left) {
      marks.removeFirst();
    }
    Mark newest = marks.getFirst();
    if (newest.newest() == left) {
      marks.removeFirst();
    }
    return new Taken(span, oldestRead, newest.at());
  }

  /** A copy of the audio that waits, for tests. */
  byte[] audio() {
    return Arrays.copyOfRange(audio, begin, end);
  }
}
