package wsladder.gateway

import org.apache.pekko.util.ByteString
import wsladder.gateway.Protocol.Covered

class BacklogSuite extends munit.FunSuite:
  private def frame(value: Int) = ByteString(Array.fill(Protocol.FrameBytes)(value.toByte))

  test("a batch has all waiting frames in order, and the next batch starts after them"):
    val backlog = Backlog()
    (1 to 3).foreach(number => backlog.add(frame(number), number * 1_000_000L))
    val batch = backlog.take().get
    assertEquals((batch.oldest, batch.frames, batch.audio.size), (1L, 3, 3 * Protocol.FrameBytes))
    assertEquals(batch.audio(Protocol.FrameBytes).toInt, 2)
    assertEquals(batch.covered(4_000_000L), Covered(1, 3, 3.0, 1.0))
    assertEquals(backlog.take(), None)
    backlog.add(frame(4), 0)
    assertEquals(backlog.take().map(_.oldest), Some(4L))

  test("the oldest frames beyond the limit are dropped and reported once"):
    val backlog = Backlog()
    (1 to 5).foreach(number => backlog.add(frame(number), number * 1_000_000L))
    assert(backlog.dropExcess(3))
    assert(!backlog.dropExcess(3))
    assertEquals(backlog.takeDropped(6_000_000L), Some(Covered(1, 2, 5.0, 4.0)))
    assertEquals(backlog.takeDropped(6_000_000L), None)
    assertEquals(backlog.take().map(batch => (batch.oldest, batch.frames)), Some((3L, 3)))
