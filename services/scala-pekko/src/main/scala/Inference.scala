package wsladder.gateway

import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.{AtomicInteger, AtomicReference}
import org.apache.pekko.actor.ActorSystem
import org.apache.pekko.http.scaladsl.Http
import org.apache.pekko.http.scaladsl.model.headers.RawHeader
import org.apache.pekko.http.scaladsl.model.*
import org.apache.pekko.http.scaladsl.settings.ClientConnectionSettings
import org.apache.pekko.stream.scaladsl.{Keep, Sink, Source}
import org.apache.pekko.stream.{BoundedSourceQueue, QueueOfferResult, StreamTcpException}
import scala.concurrent.duration.*
import scala.concurrent.{ExecutionContext, Future, Promise}
import scala.util.{Failure as Failed, Success}
import wsladder.gateway.Protocol.{Failure, Kind, Recognition}

/** Requests to the inference: Pekko HTTP's client with HTTP/2 (prior knowledge), over a fixed number of connections. */
final class Inference(config: Config)(using system: ActorSystem):
  private given ExecutionContext = system.dispatcher

  private val uri = Uri(s"http://${config.inference}/infer")
  private val passes = List(RawHeader("x-cpu-passes", config.cpuPasses.toString))
  private val connections = Vector.fill(config.inferenceHttpClients)(ReconnectingConnection(config.inference))
  private val sessions = AtomicInteger()

  /**
   * Returns the connection for a new session, which uses it for all its requests. Sessions take connections in turn.
   */
  def assignConnection(): ReconnectingConnection =
    connections(Math.floorMod(sessions.getAndIncrement(), connections.size))

  /** Sends a batch and returns its outcome. The future never fails; the session itself detects the timeout. */
  def send(connection: ReconnectingConnection, batch: Batch): Future[Either[Failure, Recognition]] =
    val entity = HttpEntity(ContentTypes.`application/octet-stream`, batch.audio)
    connection
      .send(HttpRequest(HttpMethods.POST, uri, passes, entity))
      .flatMap(parseResponse(_, batch))
      .recover(error => Left(Inference.failure(error)))

  private def parseResponse(response: HttpResponse, batch: Batch): Future[Either[Failure, Recognition]] =
    val status = response.status.intValue
    if Resets.isReset(response) then Future.successful(Left(Inference.reset))
    else
      Protocol.failureOf(status) match
        case Some(failure) =>
          response.discardEntityBytes()
          Future.successful(Left(failure))
        case None =>
          response.entity
            .toStrict(config.inferenceTimeoutMs.millis, Inference.MaxResponseBytes)
            .map(body => Protocol.parse(body.data.toArrayUnsafe(), status, batch.frames, config.cpuPasses))

object Inference:
  /** Longest response that is read, in bytes; a valid one has a few hundred. */
  private val MaxResponseBytes = 64L * 1024

  private val reset = Failure(Kind.ConnectionReset, "the inference reset the request")

  /** Classifies an exception: a response that is too long is a parse error; all else is a failure of the connection. */
  private def failure(error: Throwable): Failure = error match
    case _: EntityStreamSizeException => Failure(Kind.ParseError, "the inference's answer is too long", Some(200))
    case closed: ReconnectingConnection.Closed =>
      Failure(Kind.ConnectionReset, s"the connection failed: ${closed.getMessage}")
    case _: StreamTcpException => Failure(Kind.ConnectionReset, s"the connection failed: ${error.getMessage}")
    case _                     => Failure(Kind.ConnectionReset, s"the request failed: ${error.getMessage}")

/** One connection to the inference; the next request replaces it by a new one when it has ended. */
final class ReconnectingConnection(address: Address)(using system: ActorSystem):
  private given ExecutionContext = system.dispatcher

  private val current = AtomicReference[Option[ReconnectingConnection.Connection]](None)

  /** Sends a request. The future fails if the connection ends before the response. */
  def send(request: HttpRequest): Future[HttpResponse] = connection().send(request)

  private def connection(): ReconnectingConnection.Connection = synchronized:
    current.get.filterNot(_.isClosed).getOrElse:
      val created = ReconnectingConnection.Connection(address)
      current.set(Some(created))
      created

object ReconnectingConnection:
  /** Requests that may wait until Pekko writes them. */
  private val MaxQueuedRequests = 100_000
  private val Number = AttributeKey[RequestNumber]("request-number")

  /** The connection ended while requests had no response, or it accepts no more requests. */
  final class Closed(reason: String) extends Exception(reason)

  private final case class RequestNumber(number: Int) extends RequestResponseAssociation

  private final class Connection(address: Address)(using system: ActorSystem, context: ExecutionContext):
    private val numbers = AtomicInteger()
    private val pending = ConcurrentHashMap[Int, Promise[HttpResponse]]()
    @volatile private var closeError: Option[Throwable] = None

    private val queue: BoundedSourceQueue[HttpRequest] =
      val (queue, completion) = Source
        .queue[HttpRequest](MaxQueuedRequests)
        .via(
          Http()
            .connectionTo(address.host)
            .toPort(address.port)
            .withClientConnectionSettings(ClientConnectionSettings(system).withTransport(Resets.transport))
            .http2WithPriorKnowledge()
        )
        .toMat(Sink.foreach(complete))(Keep.both)
        .run()
      completion.onComplete:
        case Success(_)     => finish(Closed("the inference closed it"))
        case Failed(reason) => finish(reason)
      queue

    def isClosed: Boolean = closeError.isDefined

    def send(request: HttpRequest): Future[HttpResponse] =
      val number = numbers.incrementAndGet()
      val promise = Promise[HttpResponse]()
      pending.put(number, promise)
      queue.offer(request.addAttribute(Number, RequestNumber(number))) match
        case QueueOfferResult.Enqueued => ()
        case _                         => fail(number, Closed("it takes no more requests"))
      // The connection may have ended before the promise was registered.
      closeError.foreach(fail(number, _))
      promise.future

    private def complete(response: HttpResponse): Unit =
      response.attribute(Number).flatMap(request => Option(pending.remove(request.number))).foreach(_.success(response))

    private def fail(number: Int, reason: Throwable): Unit = Option(pending.remove(number)).foreach(_.failure(reason))

    private def finish(reason: Throwable): Unit =
      closeError = Some(reason)
      pending.keySet.forEach(fail(_, reason))
