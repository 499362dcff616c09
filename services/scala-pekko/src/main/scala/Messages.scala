package wsladder.gateway

import org.apache.pekko.http.wsladder.Frames
import org.apache.pekko.http.wsladder.Frames.{Header, Kind}
import org.apache.pekko.util.ByteString

/** Joins frames and parts of frames to messages, and detects frames that violate the protocol. It does no I/O. */
final class Messages:
  import Messages.*

  // The frame that is being read: its header, the number of missing bytes, the mask for them, and the payload so far.
  private var header: Option[Header] = None
  private var missing = 0L
  private var mask = 0
  private var payload = ByteString.empty
  // The fragmented message that is being read: its kind, and the payload so far.
  private var fragmented: Option[Kind] = None
  private var message = ByteString.empty

  /** Adds the next event. Returns the message or control frame that it completes, or the violation that it shows. */
  def take(event: Frames.Event): Option[Whole] =
    Frames.begins(event) match
      case Some(begun) =>
        refusal(begun) match
          case None =>
            header = Some(begun)
            missing = begun.length
            mask = begun.mask.getOrElse(0)
            payload = ByteString.empty
            more(event.data)
          case refused => refused
      case None => more(event.data)

  private def refusal(begun: Header): Option[Whole] =
    val inOrder = begun.kind match
      case Kind.Continuation       => fragmented.nonEmpty
      case Kind.Text | Kind.Binary => fragmented.isEmpty
      case _                       => begun.isLast && begun.length <= MaxControlBytes
    if begun.kind == Kind.Unknown || begun.hasReserved || begun.mask.isEmpty || !inOrder then Some(Broken)
    else if !begun.isControl && message.size + begun.length > Protocol.MaxMessageBytes then Some(TooBig)
    else None

  private def more(masked: ByteString): Option[Whole] =
    val (bytes, next) = Frames.unmask(masked, mask)
    mask = next
    missing -= bytes.size
    payload = if payload.isEmpty then bytes else payload ++ bytes
    header.filter(_ => missing == 0).flatMap(whole)

  private def whole(ended: Header): Option[Whole] =
    header = None
    ended.kind match
      case Kind.Ping  => Some(Ping(payload))
      case Kind.Pong  => Some(Pong)
      case Kind.Close => Some(closeOf(payload))
      case kind       =>
        message = if message.isEmpty then payload else message ++ payload
        val first = fragmented.getOrElse(kind)
        if ended.isLast then
          val whole = message
          message = ByteString.empty
          fragmented = None
          Some(if first == Kind.Text then Text(whole) else Binary(whole))
        else
          fragmented = Some(first)
          None

object Messages:
  private val MaxControlBytes = 125

  /** A complete message or control frame of a client, or a violation (`Broken`, `TooBig`). */
  sealed trait Whole
  final case class Text(payload: ByteString) extends Whole
  final case class Binary(payload: ByteString) extends Whole
  final case class Ping(payload: ByteString) extends Whole
  case object Pong extends Whole
  final case class Close(payload: ByteString) extends Whole
  case object Broken extends Whole
  case object TooBig extends Whole

  /** Checks a Close frame: its code must be valid (RFC 6455, 7.4) and its reason UTF-8, else it is a violation. */
  private def closeOf(payload: ByteString): Whole =
    def code = ((payload(0) & 0xff) << 8) | (payload(1) & 0xff)
    def mayBeSent = (code >= 1000 && code <= 1014 && !Set(1004, 1005, 1006)(code)) || (code >= 3000 && code <= 4999)
    val reason = payload.drop(2)
    val good = payload.isEmpty || (payload.size >= 2 && mayBeSent && ByteString(reason.utf8String) == reason)
    if good then Close(payload) else Broken
