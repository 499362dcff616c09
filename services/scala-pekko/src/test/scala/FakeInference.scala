package wsladder.gateway

import com.typesafe.config.{Config as Settings, ConfigFactory}
import org.apache.pekko.actor.ActorSystem
import org.apache.pekko.http.scaladsl.Http
import org.apache.pekko.http.scaladsl.model.*
import scala.concurrent.duration.*
import scala.concurrent.{ExecutionContext, Future}

/** An inference that answers every batch at once and rightly, over HTTP/2 with prior knowledge. */
object FakeInference:
  /** The settings of Pekko that it needs. */
  val settings: Settings = ConfigFactory.parseString("pekko.http.server.enable-http2 = on")

  /** Serves from now on; where. */
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
      .map(audio => HttpResponse(entity = HttpEntity(ContentTypes.`application/json`, answer(audio.data.size, passes))))

  /** The answer about so many bytes of audio. */
  def answer(audioBytes: Int, cpuPasses: Int): String =
    s"""{"rms":2425.5,"zero_crossings":7,"checksum":1,"samples":${cpuPasses * audioBytes / 2},""" +
      s""""transcript":"now","audio_bytes":$audioBytes}"""
