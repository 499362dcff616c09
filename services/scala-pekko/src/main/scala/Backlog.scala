package wsladder.gateway

import org.apache.pekko.util.ByteString
import scala.collection.mutable
import wsladder.gateway.Protocol.{milliseconds, Covered}

/** The audio of one request, with the times of `System.nanoTime` at which its oldest and newest frames were read. */
final case class Batch(audio: ByteString, oldest: Long, frames: Int, oldestAt: Long, newestAt: Long):
  /** Describes the frames for a message that is sent at `now`. */
  def covered(now: Long): Covered =
    Covered(oldest, frames, milliseconds(now - oldestAt), milliseconds(now - newestAt))

/** The audio that waits in a session, and the frames that were dropped because too many waited. */
final class Backlog:
  private val waiting = mutable.ArrayDeque.empty[(ByteString, Long)]
  // The number of the oldest frame that no partial and no error covers yet; the first frame is number 1.
  private var oldest = 1L
  // The dropped frames that were not reported yet, and when the first and the last of them were read.
  private var dropped = 0
  private var oldestDroppedAt, newestDroppedAt = 0L

  /** The number of frames that wait. */
  def frames: Int = waiting.size

  /** Appends a frame that was read at `now`. */
  def add(audio: ByteString, now: Long): Unit = waiting.append((audio, now))

  /** Drops the oldest frames beyond `limit`. Returns whether it dropped any; `takeLost` reports them later. */
  def dropExcess(limit: Int): Boolean =
    val exceeds = waiting.size > limit
    while waiting.size > limit do
      val (_, at) = waiting.removeHead()
      if dropped == 0 then oldestDroppedAt = at
      newestDroppedAt = at
      dropped += 1
    exceeds

  /** Returns the frames that were dropped since the last call; `None` if there were none. */
  def takeDropped(now: Long): Option[Covered] =
    Option.when(dropped > 0):
      val covered = Covered(oldest, dropped, milliseconds(now - oldestDroppedAt), milliseconds(now - newestDroppedAt))
      oldest += dropped
      dropped = 0
      covered

  /** Removes all frames and returns them as one batch; `None` if no frame waits. */
  def take(): Option[Batch] =
    Option.when(waiting.nonEmpty):
      val audio = new Array[Byte](waiting.size * Protocol.FrameBytes)
      var offset = 0
      waiting.foreach: (frame, _) =>
        frame.copyToArray(audio, offset, frame.size)
        offset += frame.size
      val batch = Batch(ByteString.fromArrayUnsafe(audio), oldest, waiting.size, waiting.head._2, waiting.last._2)
      oldest += waiting.size
      waiting.clear()
      batch

  /** Drops all waiting frames and returns their number. */
  def clear(): Int =
    val count = waiting.size
    waiting.clear()
    count
