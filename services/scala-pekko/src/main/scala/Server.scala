package wsladder.gateway

import org.apache.pekko.actor.ActorSystem
import org.apache.pekko.http.scaladsl.Http
import org.apache.pekko.http.scaladsl.model.*
import org.apache.pekko.http.scaladsl.model.HttpMethods.GET
import org.apache.pekko.http.scaladsl.model.headers.{Allow, Upgrade, UpgradeProtocol}
import org.apache.pekko.http.wsladder.Frames
import org.apache.pekko.stream.scaladsl.Flow
import scala.concurrent.Future

/** The HTTP servers of both ports: the clients' port and the metrics port. */
final class Server(gateway: Gateway)(using system: ActorSystem):
  private val host = gateway.config.host

  /** Binds the clients' port: `/ws/stt` and `/health`. */
  def clients(): Future[Http.ServerBinding] =
    Http().newServerAt(host, gateway.config.port).bindSync(route {
      case "/ws/stt" => upgrade; case "/health" => _ => health
    })

  /** Binds the metrics port: `/healthz`, `/readyz`, `/stats` and `/metrics`. */
  def metrics(): Future[Http.ServerBinding] =
    Http()
      .newServerAt(host, gateway.config.metricsPort)
      .bindSync(route {
        case "/healthz" => _ => text("ok\n")
        case "/readyz"  =>
          _ => if gateway.isAccepting then text("ready\n") else text("stopping\n", StatusCodes.ServiceUnavailable)
        case "/stats"   => _ => HttpResponse(entity = HttpEntity(ContentTypes.`application/json`, gateway.books.stats))
        case "/metrics" => _ => HttpResponse(entity = HttpEntity(Server.Prometheus, gateway.books.metrics.getBytes))
      })

  private type Handler = HttpRequest => HttpResponse

  /** Calls the handler of the request's path. Unknown paths get 404, and methods other than GET get 405. */
  private def route(routes: PartialFunction[String, Handler])(request: HttpRequest): HttpResponse =
    request.discardEntityBytes()
    routes.lift(request.uri.path.toString) match
      case None                             => text("not found\n", StatusCodes.NotFound)
      case Some(_) if request.method != GET =>
        text("GET only\n", StatusCodes.MethodNotAllowed).withHeaders(Allow(GET))
      case Some(handler) => handler(request)

  private def health: HttpResponse =
    HttpResponse(entity = HttpEntity(ContentTypes.`application/json`, s"""{"ok":true,"runtime":"${Main.Name}"}"""))

  private def upgrade(request: HttpRequest): HttpResponse =
    request.attribute(AttributeKeys.webSocketUpgrade) match
      case None =>
        text("upgrade to a WebSocket of version 13\n", StatusCodes.UpgradeRequired)
          .withHeaders(Upgrade(List(UpgradeProtocol("websocket"))))
      case Some(webSocket) =>
        gateway.books.admit(gateway.isAccepting, gateway.config.maxConnections) match
          case Some(reason) => text(s"$reason\n", StatusCodes.ServiceUnavailable)
          case None         =>
            Frames
              .handle(webSocket, Flow.fromGraph(Session(gateway)))
              .getOrElse(text("no frames\n", StatusCodes.InternalServerError))

  private def text(body: String, status: StatusCode = StatusCodes.OK): HttpResponse =
    HttpResponse(status, entity = HttpEntity(ContentTypes.`text/plain(UTF-8)`, body))

object Server:
  private val Prometheus =
    ContentType.parse("text/plain; version=0.0.4").getOrElse(ContentTypes.`text/plain(UTF-8)`)
