package wsladder.gateway

import com.github.plokhotnyuk.jsoniter_scala.core.*
import com.github.plokhotnyuk.jsoniter_scala.macros.*
import org.apache.pekko.util.ByteString
import scala.util.control.NonFatal

/** The messages on the wire: the client's start, the inference's responses, partials and errors. Pure functions. */
object Protocol:
  val FrameBytes = 640
  val FrameSamples = 320
  val MaxMessageBytes: Int = 64 * 1024

  val FirstMustBeStart = "first message must be start"
  val ExpectedAudio = "expected binary PCM frames after start"
  val ExpectedFrame = "expected 640 byte PCM frame"
  val TooBig = "message too big"

  /** A number as the inference wrote it, so that the client gets the same digits. */
  final case class RawNumber(text: String)

  private given JsonValueCodec[RawNumber] with
    def decodeValue(in: JsonReader, default: RawNumber): RawNumber =
      // The raw value may have white space around it.
      val text = String(in.readRawValAsBytes(), java.nio.charset.StandardCharsets.US_ASCII).trim
      if !isFiniteNumber(text) then in.decodeError("not a finite number")
      RawNumber(text)
    def encodeValue(written: RawNumber, out: JsonWriter): Unit = out.writeRawVal(written.text.getBytes)
    def nullValue: RawNumber = RawNumber("null")

  /** A number as RFC 8259, 6 defines it; jsoniter also accepts `01` and `1.` as raw values. */
  private val Number = """-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?""".r

  private def isFiniteNumber(text: String): Boolean = Number.matches(text) && text.toDouble.isFinite

  private final case class Start(`type`: String)

  private inline def strict = CodecMakerConfig.withSkipUnexpectedFields(false).withTransientDefault(false)
    .withTransientEmpty(false).withTransientNone(false).withRequireDefaultFields(true)

  private given startCodec: JsonValueCodec[Start] = JsonCodecMaker.make(strict)

  /** Whether `text` is exactly the object `{"type":"start"}`. */
  def isStart(text: Array[Byte]): Boolean =
    try Option(readFromArray[Start](text)).exists(_.`type` == "start")
    catch case NonFatal(_) => false

  /** The inference's response to one batch. The field names are the JSON keys. */
  final case class Recognition(
      rms: RawNumber,
      zero_crossings: Long,
      checksum: Long,
      samples: Long,
      transcript: String,
      audio_bytes: Long
  )

  private given recognitionCodec: JsonValueCodec[Recognition] = JsonCodecMaker.make(strict)

  /** Why frames got no partial. `status` is the HTTP status of the inference's response, if there was one. */
  final case class Failure(kind: Kind, message: String, status: Option[Int] = None):
    def isRetryable: Boolean = kind match
      case Kind.Timeout | Kind.ConnectionReset | Kind.Http429 => true
      case Kind.Http5xx                                       => status.exists(code => code >= 500 && code < 600)
      case Kind.Overflow | Kind.ParseError                    => false

  /** The kinds of failures: the `kind` of an error, and the `stage` at which it happens. */
  enum Kind(val name: String, val stage: String):
    case Overflow extends Kind("overflow", "websocket_receive")
    case Timeout extends Kind("timeout", "inference_request")
    case ConnectionReset extends Kind("connection_reset", "inference_request")
    case Http429 extends Kind("http_429", "inference_request")
    case Http5xx extends Kind("http_5xx", "inference_request")
    case ParseError extends Kind("parse_error", "inference_response_parse")

  /** Parses the body of a response to a batch of `frames` frames. */
  def parse(body: Array[Byte], status: Int, frames: Int, cpuPasses: Int): Either[Failure, Recognition] =
    def parseError(reason: String) = Left(Failure(Kind.ParseError, s"the inference's answer $reason", Some(status)))
    val read =
      try Option(readFromArray[Recognition](body))
      catch case NonFatal(_) => None
    read match
      case None              => parseError("is not JSON of exactly the six keys")
      case Some(recognition) =>
        val counts =
          List(recognition.zero_crossings, recognition.checksum, recognition.samples, recognition.audio_bytes)
        if counts.exists(_ < 0) || recognition.checksum >= (1L << 32) then parseError("has a number out of its range")
        else if recognition.transcript == null || recognition.transcript.isEmpty then parseError("has no transcript")
        else if recognition.samples != cpuPasses.toLong * FrameSamples * frames then
          parseError(s"counts ${recognition.samples} samples")
        else if recognition.audio_bytes != FrameBytes.toLong * frames then
          parseError(s"counts ${recognition.audio_bytes} bytes")
        else Right(recognition)

  /** Returns the failure that a status of the inference means; `None` for 2xx. */
  def failureOf(status: Int): Option[Failure] =
    def failure(kind: Kind) = Some(Failure(kind, s"the inference answered $status", Some(status)))
    status match
      case 429                    => failure(Kind.Http429)
      case _ if status / 100 == 2 => None
      case _                      => failure(Kind.Http5xx)

  private final case class Partial(
      `type`: String,
      oldest_frame_seq: Long,
      newest_frame_seq: Long,
      frames: Int,
      rms: RawNumber,
      zero_crossings: Long,
      checksum: Long,
      samples: Long,
      transcript: String,
      audio_bytes: Long,
      cpu_passes: Int,
      model_delay_ms: Int,
      flush_lateness_ms: Double,
      inflight_model_jobs: Int
  )

  private given partialCodec: JsonValueCodec[Partial] = JsonCodecMaker.make(strict)

  /** Returns the partial that covers `frames` frames from number `oldest` on. */
  def partial(
      oldest: Long,
      frames: Int,
      recognition: Recognition,
      cpuPasses: Int,
      modelDelayMs: Int,
      flushLatenessMs: Double
  ): ByteString =
    val message = Partial(
      "partial",
      oldest,
      oldest + frames - 1,
      frames,
      recognition.rms,
      recognition.zero_crossings,
      recognition.checksum,
      recognition.samples,
      recognition.transcript,
      recognition.audio_bytes,
      cpuPasses,
      modelDelayMs,
      flushLatenessMs,
      0
    )
    ByteString.fromArrayUnsafe(writeToArray(message))

  /** The frames that an error covers: their numbers, and how long ago they were read, in milliseconds. */
  final case class Covered(oldest: Long, frames: Int, oldestAgeMs: Double, newestAgeMs: Double)

  private final case class ErrorFrame(
      `type`: String,
      stage: String,
      kind: String,
      message: String,
      oldest_frame_seq: Long,
      newest_frame_seq: Long,
      frames: Int,
      audio_bytes: Long,
      oldest_age_ms: Double,
      newest_age_ms: Double,
      flush_lateness_ms: Double,
      inference_elapsed_ms: Option[Double],
      inflight_gateway_batches: Int,
      gateway_buffer_frames: Int,
      inference_status: Option[Int],
      retryable: Boolean
  )

  private given errorCodec: JsonValueCodec[ErrorFrame] = JsonCodecMaker.make(strict)

  /** Returns the error that covers these frames. */
  def error(
      failure: Failure,
      covered: Covered,
      flushLatenessMs: Double,
      inferenceElapsedMs: Option[Double],
      waitingFrames: Int
  ): ByteString =
    val message = ErrorFrame(
      "error",
      failure.kind.stage,
      failure.kind.name,
      failure.message,
      covered.oldest,
      covered.oldest + covered.frames - 1,
      covered.frames,
      covered.frames.toLong * FrameBytes,
      covered.oldestAgeMs,
      covered.newestAgeMs,
      flushLatenessMs,
      inferenceElapsedMs,
      if failure.kind == Kind.Overflow then 0 else 1,
      waitingFrames,
      failure.status,
      failure.isRetryable
    )
    ByteString.fromArrayUnsafe(writeToArray(message))

  /** Converts nanoseconds to milliseconds. A negative time becomes 0. */
  def milliseconds(nanos: Long): Double = math.max(0L, nanos) / 1e6
