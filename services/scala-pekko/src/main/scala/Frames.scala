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
 * Access to Pekko HTTP's WebSocket frames. Pekko's flow of messages hides the client's close code and can't send one,
 * but the contract requires close codes. Below it is a flow of frames, which is visible only in Pekko's package, so
 * this file is in that package. The library still does the framing: it reads and writes all headers and masks.
 */
object Frames:
  type Event = FrameEvent
  type Start = FrameStart

  /** Returns the response that upgrades to this flow of frames; `None` if the upgrade doesn't support frames. */
  def handle(upgrade: WebSocketUpgrade, frames: Flow[FrameEvent, FrameEvent, NotUsed]): Option[HttpResponse] =
    upgrade match
      case lowLevel: UpgradeToWebSocketLowLevel => Some(lowLevel.handleFrames(frames, None))
      case _                                    => None

  enum Kind:
    case Continuation, Text, Binary, Close, Ping, Pong, Unknown

  /** The header of a frame; `length` is that of the payload, in bytes. */
  final case class Header(kind: Kind, mask: Option[Int], length: Long, isLast: Boolean, hasReservedBits: Boolean):
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

  /** Returns the header if the event starts a frame; `None` if it continues one. */
  def headerOf(event: FrameEvent): Option[Header] = event match
    case start: FrameStart => Some(header(start))
    case _                 => None

  /** Unmasks a part of a payload. The second value is the mask for the part that follows. */
  def unmask(bytes: ByteString, mask: Int): (ByteString, Int) = FrameEventParser.mask(bytes, mask)

  def text(payload: ByteString): FrameEvent = fullFrame(Protocol.Opcode.Text, payload)
  def pong(payload: ByteString): FrameEvent = fullFrame(Protocol.Opcode.Pong, payload)
  def close(payload: ByteString): FrameEvent = fullFrame(Protocol.Opcode.Close, payload)
  def close(code: Int, reason: String): FrameEvent =
    close(ByteString(code >> 8, code & 0xff) ++ ByteString(reason))

  private def fullFrame(opcode: Protocol.Opcode, payload: ByteString): FrameEvent =
    FrameEvent.fullFrame(opcode, None, payload, fin = true)
