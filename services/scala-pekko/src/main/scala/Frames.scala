package org.apache.pekko.http.wsladder

import org.apache.pekko.NotUsed
import org.apache.pekko.http.impl.engine.ws.{
  FrameEvent,
  FrameEventParser,
  FrameStart,
  Protocol,
  UpgradeToWebSocketLowLevel
}
import org.apache.pekko.http.scaladsl.model.HttpResponse
import org.apache.pekko.http.scaladsl.model.ws.WebSocketUpgrade
import org.apache.pekko.stream.scaladsl.Flow
import org.apache.pekko.util.ByteString

/**
 * Pekko HTTP's frames. Its flow of messages hides a client's close code and can send none, and the contract has close
 * codes; below it lies a flow of frames, which is Pekko's own and so only seen from its package. Framing is the
 * library's all the same: it reads and writes every header, and masks.
 */
object Frames:
  type Event = FrameEvent
  type Start = FrameStart

  /** Answers an upgrade with this flow of frames; `None` for one that knows no frames. */
  def handle(upgrade: WebSocketUpgrade, frames: Flow[FrameEvent, FrameEvent, NotUsed]): Option[HttpResponse] =
    upgrade match
      case lowLevel: UpgradeToWebSocketLowLevel => Some(lowLevel.handleFrames(frames, None))
      case _                                    => None

  enum Kind:
    case Continuation, Text, Binary, Close, Ping, Pong, Unknown

  /** A frame's header. */
  final case class Header(kind: Kind, mask: Option[Int], length: Long, isLast: Boolean, hasReserved: Boolean):
    def isControl: Boolean = kind == Kind.Close || kind == Kind.Ping || kind == Kind.Pong

  def header(start: FrameStart): Header =
    val header = start.header
    val kind = header.opcode match
      case Protocol.Opcode.Continuation => Kind.Continuation
      case Protocol.Opcode.Text         => Kind.Text
      case Protocol.Opcode.Binary       => Kind.Binary
      case Protocol.Opcode.Close        => Kind.Close
      case Protocol.Opcode.Ping         => Kind.Ping
      case Protocol.Opcode.Pong         => Kind.Pong
      case _                            => Kind.Unknown
    Header(kind, header.mask, header.length, header.fin, header.rsv1 || header.rsv2 || header.rsv3)

  /** The header of a frame that begins, and its first bytes; `None` for more of one that has begun. */
  def begins(event: FrameEvent): Option[Header] = event match
    case start: FrameStart => Some(header(start))
    case _                 => None

  /** Takes the mask off; the second is the mask for what follows. */
  def unmask(bytes: ByteString, mask: Int): (ByteString, Int) = FrameEventParser.mask(bytes, mask)

  def text(payload: ByteString): FrameEvent = whole(Protocol.Opcode.Text, payload)
  def pong(payload: ByteString): FrameEvent = whole(Protocol.Opcode.Pong, payload)
  def close(payload: ByteString): FrameEvent = whole(Protocol.Opcode.Close, payload)
  def close(code: Int, reason: String): FrameEvent =
    close(ByteString(code >> 8, code & 0xff) ++ ByteString(reason))

  private def whole(opcode: Protocol.Opcode, payload: ByteString): FrameEvent =
    FrameEvent.fullFrame(opcode, None, payload, fin = true)
