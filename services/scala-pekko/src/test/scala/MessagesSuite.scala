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
   * Returns the messages in these bytes, which arrive in parts of `part` bytes. `Broken` stands for a violation that
   * the library detects.
   */
  private def received(wire: String, part: Int): List[Messages.Whole] =
    val bytes = ByteString(wire.grouped(2).map(Integer.parseInt(_, 16).toByte).toArray)
    val source: Source[ByteString, NotUsed] = Source(bytes.grouped(part).toList)
    val messages = Messages()
    val events = Await.result(Framing.read(source).runWith(Sink.seq), 10.seconds)
    events.flatMap:
      case Some(event) => messages.take(event)
      case None        => Some(Messages.Broken)
    .toList

  for
    entry <- Golden.client.filter(_.wire.nonEmpty)
    part <- List(1, 7, 100_000)
  do
    test(s"${entry.name}, in parts of $part bytes"):
      val first = received(entry.wire.get, part).headOption
      entry.means match
        case "close" if entry.code.contains(1009) => assertEquals(first, Some(Messages.TooBig))
        case "close" if entry.code.contains(1002) && entry.reason.isEmpty && !Library.takes(entry.name) =>
          assertEquals(first, Some(Messages.Broken))
        case "pong" => assertEquals(first, Some(Messages.Ping(payload(entry.hex.get))))
        case _      => assert(first.exists(_ != Messages.Broken), first)

  private def payload(hex: String) =
    ByteString(hex.grouped(2).filter(_.nonEmpty).map(Integer.parseInt(_, 16).toByte).toArray)

/** Messages that the library accepts although the contract refuses them; the registry declares them. */
object Library:
  def takes(name: String): Boolean = name.startsWith("length of")
