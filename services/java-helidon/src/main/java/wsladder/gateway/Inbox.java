package wsladder.gateway;

import io.helidon.common.buffers.BufferData;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Optional;
import wsladder.gateway.Protocol.Span;

/**
 * The waiting frames of a session: their audio, contiguous in memory, the times at which they were
 * read, and the frames that were dropped because too many waited. It does no I/O and uses no clock.
 */
final class Inbox {
  /**
   * The time at which the frames after the previous mark, up to number {@code newest}, were read.
   */
  private record Mark(long newest, long readAt) {}

  /**
   * Frames that were removed from the inbox, and the times at which the first and the last of them
   * were read.
   */
  record TakenFrames(Span span, long oldestReadAt, long newestReadAt) {}

  /**
   * A batch for the inference. Its audio is the {@code length} bytes of {@code audio} from {@code
   * offset} on.
   */
  record Batch(TakenFrames taken, byte[] audio, int offset, int length) {}

  private static final byte[] EMPTY = {};

  private final int maxFrames;
  private final int usualBytes;
  private final ArrayDeque<Mark> marks = new ArrayDeque<>();
  private byte[] audio = EMPTY;

  /** Array of an earlier batch, which the next one uses. */
  private byte[] spare = EMPTY;

  /** Offsets of the waiting audio in {@code audio}. */
  private int begin;

  private int end;

  /** Number of the last frame that was removed, and of the last one that has a mark. */
  private long lastRemoved;

  private long lastMarked;

  /** Dropped frames that were not reported yet; {@code null} if there are none. */
  private TakenFrames overflow;

  /**
   * Creates an empty inbox.
   *
   * @param maxFrames limit of waiting frames
   * @param usualFrames usual size of a batch; the first frame allocates memory for it
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
   * Records that the frames added since the last mark were read at {@code readAt}. Returns their
   * number.
   */
  int mark(long readAt) {
    long newest = lastRemoved + frames();
    int added = (int) (newest - lastMarked);
    if (added > 0) {
      marks.addLast(new Mark(newest, readAt));
      lastMarked = newest;
    }
    return added;
  }

  /**
   * Drops the oldest frames beyond the limit and returns their number. All frames must be marked.
   */
  int dropExcess() {
    int excess = frames() - maxFrames;
    if (excess <= 0) {
      return 0;
    }
    TakenFrames later = remove(excess);
    // The overflow is reported before each batch is taken, so dropped frames are contiguous.
    overflow =
        overflow == null
            ? later
            : new TakenFrames(
                new Span(overflow.span().oldest(), overflow.span().frames() + excess),
                overflow.oldestReadAt(),
                later.newestReadAt());
    begin += excess * Protocol.FRAME_BYTES;
    return excess;
  }

  /** Returns the dropped frames that were not reported yet, once. */
  Optional<TakenFrames> takeOverflow() {
    Optional<TakenFrames> dropped = Optional.ofNullable(overflow);
    overflow = null;
    return dropped;
  }

  /**
   * Removes all frames and returns them as a batch. There must be at least one, and all must be
   * marked.
   */
  Batch take() {
    Batch batch = new Batch(remove(frames()), audio, begin, end - begin);
    audio = spare;
    spare = EMPTY;
    begin = 0;
    end = 0;
    return batch;
  }

  /** Keeps the array of a completed batch for a later one, unless it is larger than usual. */
  void recycle(byte[] array) {
    // The larger array of a burst must not stay in memory until the session ends.
    if (array.length > usualBytes) {
      return;
    }
    if (end == 0) {
      audio = array;
    } else {
      spare = array;
    }
  }

  /** Drops all waiting frames and returns their number. */
  int clear() {
    int frames = frames();
    lastRemoved += frames;
    lastMarked = lastRemoved;
    audio = EMPTY;
    spare = EMPTY;
    begin = 0;
    end = 0;
    marks.clear();
    return frames;
  }

  private TakenFrames remove(int frames) {
    Span span = new Span(lastRemoved + 1, frames);
    lastRemoved += frames;
    final long oldestReadAt = marks.getFirst().readAt();
    while (marks.getFirst().newest() < lastRemoved) {
      marks.removeFirst();
    }
    Mark newest = marks.getFirst();
    if (newest.newest() == lastRemoved) {
      marks.removeFirst();
    }
    return new TakenFrames(span, oldestReadAt, newest.readAt());
  }

  /** Returns a copy of the waiting audio, for tests. */
  byte[] audio() {
    return Arrays.copyOfRange(audio, begin, end);
  }
}
