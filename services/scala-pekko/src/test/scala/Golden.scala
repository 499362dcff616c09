package wsladder.gateway

import com.github.plokhotnyuk.jsoniter_scala.core.*
import com.github.plokhotnyuk.jsoniter_scala.macros.*
import java.nio.file.{Files, Path}

/** Loads `services/testdata/stt-messages.json`, the golden messages with which all gateways are tested. */
object Golden:
  final case class Client(
      name: String,
      state: String,
      means: String,
      text: Option[String],
      wire: Option[String],
      zeros: Option[Int],
      binary: Option[String],
      code: Option[Int],
      reason: Option[String],
      hex: Option[String]
  )
  final case class Inference(
      name: String,
      status: Int,
      body: String,
      frames: Int,
      cpu_passes: Int,
      means: String,
      stage: Option[String],
      kind: Option[String],
      inference_status: Option[Int],
      retryable: Option[Boolean]
  )
  final case class OfPartial(
      oldest_frame_seq: Long,
      frames: Int,
      cpu_passes: Int,
      model_delay_ms: Int,
      flush_lateness_ms: Double,
      body: String
  )
  final case class Partial(name: String, of: OfPartial, text: String)
  final case class OfError(
      kind: String,
      message: String,
      oldest_frame_seq: Long,
      frames: Int,
      oldest_age_ms: Double,
      newest_age_ms: Double,
      flush_lateness_ms: Double,
      inference_elapsed_ms: Option[Double],
      gateway_buffer_frames: Int,
      inference_status: Option[Int]
  )
  final case class Error(name: String, of: OfError, text: String)
  final case class All(client: List[Client], inference: List[Inference], partial: List[Partial], error: List[Error])

  private given JsonValueCodec[All] = JsonCodecMaker.make

  private val all: All = readFromArray[All](Files.readAllBytes(Path.of("../testdata/stt-messages.json")))

  export all.{client, error, inference, partial}
