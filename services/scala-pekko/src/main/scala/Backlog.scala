package wsladder.gateway

import org.apache.pekko.util.ByteString
import scala.collection.mutable
import wsladder.gateway.Protocol.{milliseconds, Covered}

/** The audio of one request, with when its oldest and newest frame were read. Times are `System.nanoTime`'s. */
final case class Batch(audio: ByteString, oldest: Long, frames: Int, oldestAt: Long, newestAt: Long):
  /** Its frames as a message at `now` is about them. */
  def covered(now: Long): Covered =
    Covered(oldest, frames, milliseconds(now - oldestAt), milliseconds(now - newestAt))

/** The audio that waits in a session, and frames that were too many. */
final class Backlog:
  private val waiting = mutable.ArrayDeque.empty[(ByteString, Long)]
  // The number of the oldest frame that no message has covered yet.
  private var oldest = 1L
  private var lost = 0
  private var lostOldestAt, lostNewestAt = 0L

  /** How many frames wait. */
  def frames: Int = waiting.size

  /** A frame that was read at `now`. */
  def add(audio: ByteString, now: Long): Unit = waiting.append((audio, now))

  /** Drops what is beyond `limit` frames, the oldest first; whether it did. They stay noted until `takeLost`. */
  def dropExcess(limit: Int): Boolean =
    val drops = waiting.size > limit
    while waiting.size > limit do
      val (_, at) = waiting.removeHead()
      if lost == 0 then lostOldestAt = at
      lostNewestAt = at
      lost += 1
    drops

  /** The frames that were dropped since the last call. */
  def takeLost(now: Long): Option[Covered] =
    Option.when(lost > 0):
      val covered = Covered(oldest, lost, milliseconds(now - lostOldestAt), milliseconds(now - lostNewestAt))
      oldest += lost
      lost = 0
      covered

  /** All that waits; nothing where nothing does. */
  def take(): Option[Batch] =
    Option.when(waiting.nonEmpty):
      val audio = new Array[Byte](waiting.size * Protocol.FrameBytes)
      var at = 0
      waiting.foreach: (frame, _) =>
        frame.copyToArray(audio, at, frame.size)
        at += frame.size
      val batch = Batch(ByteString.fromArrayUnsafe(audio), oldest, waiting.size, waiting.head._2, waiting.last._2)
      oldest += waiting.size
      waiting.clear()
      batch

  /** Gives up all that waits; how many frames that was. */
  def clear(): Int =
    val count = waiting.size
    waiting.clear()
    count
