package wsladder.gateway

import org.apache.pekko.NotUsed
import org.apache.pekko.actor.ActorSystem
import org.apache.pekko.http.wsladder.Framing
import org.apache.pekko.stream.scaladsl.{Sink, Source}
import org.apache.pekko.util.ByteString
import scala.concurrent.Await
import scala.concurrent.duration.*

/** Tests of `Messages` with the frame events of Pekko's parser. */
class MessagesSuite extends munit.FunSuite:
  private given system: ActorSystem = ActorSystem("messages")

  override def afterAll(): Unit =
    Await.result(system.terminate(), 10.seconds)
    ()

  /**
   * Returns the messages in these bytes, which arrive in parts of `partBytes` bytes. `ProtocolError` stands for a
   * violation that the library detects.
   */
  private def received(wire: String, partBytes: Int): List[Messages.Inbound] =
    val bytes = ByteString(wire.grouped(2).map(Integer.parseInt(_, 16).toByte).toArray)
    val source: Source[ByteString, NotUsed] = Source(bytes.grouped(partBytes).toList)
    val messages = Messages()
    val events = Await.result(Framing.read(source).runWith(Sink.seq), 10.seconds)
    events.flatMap:
      case Some(event) => messages.add(event)
      case None        => Some(Messages.ProtocolError)
    .toList

  for
    entry <- Golden.client.filter(_.wire.nonEmpty)
    partBytes <- List(1, 7, 100_000)
  do
    test(s"${entry.name}, in parts of $partBytes bytes"):
      val first = received(entry.wire.get, partBytes).headOption
      entry.means match
        case "close" if entry.code.contains(1009) => assertEquals(first, Some(Messages.TooBig))
        case "close" if entry.code.contains(1002) && entry.reason.isEmpty && !Library.accepts(entry.name) =>
          assertEquals(first, Some(Messages.ProtocolError))
        case "pong" => assertEquals(first, Some(Messages.Ping(payload(entry.hex.get))))
        case _      => assert(first.exists(_ != Messages.ProtocolError), first)

  private def payload(hex: String) =
    ByteString(hex.grouped(2).filter(_.nonEmpty).map(Integer.parseInt(_, 16).toByte).toArray)

/** Frames that the library accepts although the contract rejects them; the registry declares these exceptions. */
object Library:
  def accepts(name: String): Boolean = name.startsWith("length of")
