package wsladder.gateway;

import io.helidon.common.buffers.BufferData;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Optional;
import wsladder.gateway.Protocol.Span;

/**
 * The waiting frames of a session: their audio, contiguous in memory, the times of their reads, and
 * the frames that were dropped because too many waited. It does no I/O and uses no clock.
 */
final class Inbox {
  /**
   * The frames after those of the previous mark, up to number {@code newest}, were read at {@code
   * at}.
   */
  private record Mark(long newest, long at) {}

  /**
   * Frames that left the inbox, and the times at which the first and the last of them were read.
   */
  record Taken(Span span, long oldestRead, long newestRead) {}

  /**
   * A batch for the inference. Its audio is the {@code length} bytes of {@code audio} from {@code
   * offset} on.
   */
  record Batch(Taken taken, byte[] audio, int offset, int length) {}

  private static final byte[] NONE = {};

  private final int maxFrames;
  private final int usualBytes;
  private final ArrayDeque<Mark> marks = new ArrayDeque<>();
  private byte[] audio = NONE;

  /** Memory of an earlier batch that the next one uses. */
  private byte[] spare = NONE;

  private int begin;
  private int end;
  private long left;
  private long marked;
  private Taken overflow;

  /**
   * Creates an empty inbox.
   *
   * @param maxFrames limit of waiting frames
   * @param usualFrames usual size of a batch; memory for it is allocated at once
   */
  Inbox(int maxFrames, int usualFrames) {
    this.maxFrames = maxFrames;
    this.usualBytes = usualFrames * Protocol.FRAME_BYTES;
  }

  /** The number of frames that wait. */
  int frames() {
    return (end - begin) / Protocol.FRAME_BYTES;
  }

  /** Appends one frame of 640 bytes. */
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

  /**
   * Records that the frames added since the last mark were read at {@code at}. Returns their
   * number.
   */
  int mark(long at) {
    long came = left + frames();
    int arrived = (int) (came - marked);
    if (arrived > 0) {
      marks.addLast(new Mark(came, at));
      marked = came;
    }
    return arrived;
  }

  /**
   * Drops the oldest frames beyond the limit and returns their number. All frames must be marked.
   */
  int dropExcess() {
    int excess = frames() - maxFrames;
    if (excess <= 0) {
      return 0;
    }
    Taken later = leave(excess);
    // Frames leave as a batch only after the overflow was reported, so dropped frames are
    // contiguous.
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

  /** Returns the dropped frames that were not reported yet, and forgets them. */
  Optional<Taken> takeOverflow() {
    Optional<Taken> dropped = Optional.ofNullable(overflow);
    overflow = null;
    return dropped;
  }

  /**
   * Removes all frames and returns them as a batch. There must be at least one, and all must be
   * marked.
   */
  Batch take() {
    Batch batch = new Batch(leave(frames()), audio, begin, end - begin);
    audio = spare;
    spare = NONE;
    begin = 0;
    end = 0;
    return batch;
  }

  /** Takes back the memory of a batch, for a later batch, unless it is larger than usual. */
  void recycle(byte[] memory) {
    // A burst's larger array must not stay in memory for the rest of the session.
    if (memory.length > usualBytes) {
      return;
    }
    if (end == 0) {
      audio = memory;
    } else {
      spare = memory;
    }
  }

  /** Drops all waiting frames and returns their number. */
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

  /** Returns a copy of the waiting audio, for tests. */
  byte[] audio() {
    return Arrays.copyOfRange(audio, begin, end);
  }
}
