package wsladder.gateway

import org.apache.pekko.http.wsladder.Frames
import org.apache.pekko.http.wsladder.Frames.{Header, Kind}
import org.apache.pekko.util.ByteString

/** Joins parts of frames and fragments to messages, and detects frames that violate the protocol. It does no I/O. */
final class Messages:
  import Messages.*

  // The incomplete frame: its header, the number of missing bytes, the mask for them, and the payload so far.
  private var header: Option[Header] = None
  private var missing = 0L
  private var mask = 0
  private var payload = ByteString.empty
  // The incomplete fragmented message: its kind, and the payload so far.
  private var fragmented: Option[Kind] = None
  private var message = ByteString.empty

  /** Adds the next event. Returns the message or control frame that it completes, or the violation that it shows. */
  def add(event: Frames.Event): Option[Inbound] =
    Frames.headerOf(event) match
      case Some(started) =>
        violation(started) match
          case None =>
            header = Some(started)
            missing = started.length
            mask = started.mask.getOrElse(0)
            payload = ByteString.empty
            addPayload(event.data)
          case violation => violation
      case None => addPayload(event.data)

  private def violation(started: Header): Option[Inbound] =
    val inOrder = started.kind match
      case Kind.Continuation       => fragmented.nonEmpty
      case Kind.Text | Kind.Binary => fragmented.isEmpty
      case _                       => started.isLast && started.length <= MaxControlBytes
    if started.kind == Kind.Unknown || started.hasReservedBits || started.mask.isEmpty || !inOrder then
      Some(ProtocolError)
    else if !started.isControl && message.size + started.length > Protocol.MaxMessageBytes then Some(TooBig)
    else None

  private def addPayload(masked: ByteString): Option[Inbound] =
    val (bytes, next) = Frames.unmask(masked, mask)
    mask = next
    missing -= bytes.size
    payload = if payload.isEmpty then bytes else payload ++ bytes
    header.filter(_ => missing == 0).flatMap(complete)

  private def complete(frame: Header): Option[Inbound] =
    header = None
    frame.kind match
      case Kind.Ping  => Some(Ping(payload))
      case Kind.Pong  => Some(Pong)
      case Kind.Close => Some(parseClose(payload))
      case kind       =>
        message = if message.isEmpty then payload else message ++ payload
        val first = fragmented.getOrElse(kind)
        if frame.isLast then
          val joined = message
          message = ByteString.empty
          fragmented = None
          Some(if first == Kind.Text then Text(joined) else Binary(joined))
        else
          fragmented = Some(first)
          None

object Messages:
  private val MaxControlBytes = 125

  /** A complete message or control frame of a client, or a violation (`ProtocolError`, `TooBig`). */
  sealed trait Inbound
  final case class Text(payload: ByteString) extends Inbound
  final case class Binary(payload: ByteString) extends Inbound
  final case class Ping(payload: ByteString) extends Inbound
  case object Pong extends Inbound
  final case class Close(payload: ByteString) extends Inbound
  case object ProtocolError extends Inbound
  case object TooBig extends Inbound

  /** Checks a Close frame: its code must be valid (RFC 6455, 7.4) and its reason UTF-8, else it is a violation. */
  private def parseClose(payload: ByteString): Inbound =
    def code = ((payload(0) & 0xff) << 8) | (payload(1) & 0xff)
    def isValidCode = (code >= 1000 && code <= 1014 && !Set(1004, 1005, 1006)(code)) || (code >= 3000 && code <= 4999)
    val reason = payload.drop(2)
    val isValid = payload.isEmpty || (payload.size >= 2 && isValidCode && ByteString(reason.utf8String) == reason)
    if isValid then Close(payload) else ProtocolError
