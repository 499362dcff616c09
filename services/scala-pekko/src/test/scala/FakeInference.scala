package wsladder.gateway

import com.typesafe.config.{Config as Settings, ConfigFactory}
import org.apache.pekko.actor.ActorSystem
import org.apache.pekko.http.scaladsl.Http
import org.apache.pekko.http.scaladsl.model.*
import scala.concurrent.duration.*
import scala.concurrent.{ExecutionContext, Future}

/** An inference over HTTP/2 with prior knowledge that responds to every batch at once, with valid values. */
object FakeInference:
  /** Pekko settings that the actor system of this server needs. */
  val settings: Settings = ConfigFactory.parseString("pekko.http.server.enable-http2 = on")

  /** Starts the server on a free port and returns its URL. */
  def start()(using system: ActorSystem): Future[String] =
    given ExecutionContext = system.dispatcher
    Http()
      .newServerAt("127.0.0.1", 0)
      .bind(serve)
      .map(binding => s"http://127.0.0.1:${binding.localAddress.getPort}")

  private def serve(request: HttpRequest)(using system: ActorSystem): Future[HttpResponse] =
    given ExecutionContext = system.dispatcher
    val passes = request.headers.find(_.is("x-cpu-passes")).fold(0)(_.value.toInt)
    request.entity
      .toStrict(1.second)
      .map(audio =>
        HttpResponse(entity = HttpEntity(ContentTypes.`application/json`, response(audio.data.size, passes)))
      )

  /** Returns the response to a request with `audioBytes` bytes of audio. */
  def response(audioBytes: Int, cpuPasses: Int): String =
    s"""{"rms":2425.5,"zero_crossings":7,"checksum":1,"samples":${cpuPasses * audioBytes / 2},""" +
      s""""transcript":"now","audio_bytes":$audioBytes}"""
