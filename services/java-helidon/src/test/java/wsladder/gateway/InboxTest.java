package wsladder.gateway;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;

import io.helidon.common.buffers.BufferData;
import java.util.Arrays;
import java.util.Optional;
import java.util.Random;
import org.junit.jupiter.api.Test;
import wsladder.gateway.Inbox.Batch;
import wsladder.gateway.Inbox.TakenFrames;
import wsladder.gateway.Protocol.Span;

final class InboxTest {
  private static byte[] frame(int number) {
    byte[] frame = new byte[Protocol.FRAME_BYTES];
    Arrays.fill(frame, (byte) number);
    return frame;
  }

  private static void add(Inbox inbox, int first, int last) {
    for (int number = first; number <= last; number++) {
      inbox.add(BufferData.create(frame(number)));
    }
  }

  @Test
  void batchHasFramesInOrderAndTheirReadTimes() {
    Inbox inbox = new Inbox(200, 2);
    add(inbox, 1, 3);
    assertEquals(3, inbox.mark(10));
    add(inbox, 4, 5);
    assertEquals(2, inbox.mark(20));
    assertEquals(0, inbox.mark(30));
    Batch batch = inbox.take();
    assertEquals(new TakenFrames(new Span(1, 5), 10, 20), batch.taken());
    for (int number = 1; number <= 5; number++) {
      int at = batch.offset() + (number - 1) * Protocol.FRAME_BYTES;
      byte[] audio = Arrays.copyOfRange(batch.audio(), at, at + Protocol.FRAME_BYTES);
      assertArrayEquals(frame(number), audio);
    }
  }

  @Test
  void framesDroppedBeforeAReportAreReportedTogether() {
    Inbox inbox = new Inbox(2, 2);
    add(inbox, 1, 4);
    inbox.mark(10);
    assertEquals(2, inbox.dropExcess());
    add(inbox, 5, 7);
    inbox.mark(20);
    assertEquals(3, inbox.dropExcess());
    assertEquals(Optional.of(new TakenFrames(new Span(1, 5), 10, 20)), inbox.takeOverflow());
    assertEquals(Optional.empty(), inbox.takeOverflow());
    assertEquals(new Span(6, 2), inbox.take().taken().span());
  }

  @Test
  void recycledArrayIsUsedForALaterBatch() {
    Inbox inbox = new Inbox(200, 4);
    add(inbox, 1, 4);
    inbox.mark(10);
    Batch batch = inbox.take();
    inbox.recycle(batch.audio());
    add(inbox, 5, 8);
    inbox.mark(20);
    assertSame(batch.audio(), inbox.take().audio());
  }

  @Test
  void randomInputIsCoveredOnceAndInOrder() {
    long seed = System.nanoTime();
    Random random = new Random(seed);
    Inbox inbox = new Inbox(20, 8);
    int added = 0;
    long covered = 0;
    for (int step = 0; step < 5_000; step++) {
      int count = random.nextInt(12);
      add(inbox, added + 1, added + count);
      added += count;
      inbox.mark(step);
      inbox.dropExcess();
      if (random.nextInt(3) == 0) {
        Optional<TakenFrames> dropped = inbox.takeOverflow();
        if (dropped.isPresent()) {
          assertEquals(covered + 1, dropped.get().span().oldest(), "seed " + seed);
          covered = dropped.get().span().newest();
        }
        if (inbox.frames() > 0) {
          byte[] audio = inbox.audio();
          Batch batch = inbox.take();
          Span span = batch.taken().span();
          assertEquals(covered + 1, span.oldest(), "seed " + seed);
          assertEquals((byte) span.oldest(), audio[0], "seed " + seed);
          assertEquals((byte) span.newest(), audio[audio.length - 1], "seed " + seed);
          covered = span.newest();
          inbox.recycle(batch.audio());
        }
      }
    }
  }

  @Test
  void clearedInboxIsEmpty() {
    Inbox inbox = new Inbox(20, 8);
    add(inbox, 1, 3);
    assertEquals(3, inbox.clear());
    assertEquals(0, inbox.mark(10));
    assertEquals(0, inbox.frames());
  }
}
